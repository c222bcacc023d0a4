// NEFTune: adds noise to the embeddings of tokens while a model trains.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// Whatever reads the embeddings of an axis's tokens reads them with noise of this alpha
// (ops/pointwise/noise.cc).
Graph add_noise(Graph graph, double alpha);

}  // namespace plimsoll
