// Recomputes tensors that are cheap to compute and too large to keep right before every reader.
#pragma once

#include <functional>

#include "graph/graph.h"

namespace plimsoll {

// The outputs of `selected` ops never outlive the op that reads them; ops in a row share a copy. Such ops
// read persistent tensors, inputs, or outputs of other selected ops; anything else is an InternalError.
Graph rematerialise(Graph graph, const std::function<bool(const Op&)>& selected);

}  // namespace plimsoll
