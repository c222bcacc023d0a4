// Makes one op of two that follow each other.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// A half of a half is one scaling, where nothing else reads the half between.
Graph fold_halves(const Graph& graph);

}  // namespace plimsoll
