// Moves the optimizer into the backward pass: each weight is updated as soon as its gradient is complete and
// nothing reads the weight any more, so that no gradient outlives its layer.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// `train` with the ops of `update`, which is not needed any more. For steps of one micro-step and without
// clipping: the norm of all gradients, still reported, is known only at the end. Throws InternalError when
// `update` clips, and where it skips steps whose gradients overflowed. The bits of all results stay.
Graph update_in_backward(Graph train, const Graph& update);

}  // namespace plimsoll
