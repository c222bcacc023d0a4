// Slices of a rank's piece of a weight (ops/optimizer/optimizer.h has pieces and slices by themselves).
//
// An op on a rank's piece may work on a slice of it: attribute `slice` (int; absent: all of the piece) has the elements
// of an operand that was fetched for it, of which the last rank's op may use fewer. Attribute `whole` (int; absent: the
// gradient's) has the weight's elements, where the gradient is a part fetched from elsewhere. Transfers of a range that
// differs from rank to rank have `piece` and `whole` too.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace plimsoll {

// By weight that the program updates: the elements of each rank's piece, 0 where every rank updates all of it.
std::map<std::string, int64_t> updated_pieces(const Graph& program);

// Ranks exchange something between ops of the program: they divide what it updates, reduces or reads, or update in the
// backward pass.
bool exchanges_between_ops(const Graph& program);

}  // namespace plimsoll
