// Determines which values of the forward pass survive until the backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "passes/recompute.h"

namespace plimsoll {

inline constexpr int32_t kNoOp = -1;

// Facts about the activations of the forward pass, by tensor id.
struct ForwardValues {
  std::vector<int32_t> producer;   // index of the forward op that can be repeated for it, or kNoOp
  std::vector<BlockId> block;      // of that op
  std::vector<char> needed;        // a backward op reads it
  std::vector<char> leaves_block;  // an op of another block, or of none, reads it
};

ForwardValues find_forward_values(const Graph& train);

// The state of a value after the forward pass.
enum class Fate : uint8_t {
  kept,
  derived,  // dropped; follows from kept values without a matrix product
  lost      // dropped
};

// By tensor id. An op of the backward pass that reads a value which is not kept needs it recomputed.
std::vector<Fate> find_fates(const Graph& train, const ForwardValues& values, const RecomputeChoice& choice);

// By tensor id: whether the value follows from others that the backward pass reads anyway, without a matrix
// product.
std::vector<char> find_derivable(const Graph& train, const ForwardValues& values);

}  // namespace plimsoll
