// Every op in double, as plainly as it can be written: what the kernels are compared with.
#pragma once

#include "harness/op_case.h"

namespace plimsoll::harness {

// Runs all ops. `round_outputs`: outputs are rounded to their element types, as storing them does; without it
// the graph is a smooth function, fit for finite differences.
void run_reference(const Graph& graph, std::vector<Values>& values, bool round_outputs);

}  // namespace plimsoll::harness
