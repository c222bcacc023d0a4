// Recomputation: activations that the backward pass reads are dropped after the forward pass and computed
// again.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

// What a layer drops, each point more than the one before (planning-notes, section 3): nothing; the product
// of the MLP's gate; norms too; all of the MLP (kept: rotated q, k, v, o and the first sum); all but the
// attention's output; everything but the layer's input.
enum class RecomputePoint : uint8_t { none, act, cheap, mlp, attention, block };
inline constexpr int kNumRecomputePoints = 6;
std::string_view to_string(RecomputePoint point);
// Throws UsageError.
RecomputePoint parse_recompute_point(std::string_view text);

struct RecomputeChoice {
  std::vector<RecomputePoint> layers;  // by layer; empty: nothing is dropped anywhere
  int64_t segment = 1;                 // with `block`: only every segment-th layer keeps its input

  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

// `train` is differentiated. Ops that are computed again stand right before the first backward op that reads
// them, in their forward scope, so that dropout sees the same numbers. Same bits.
Graph recompute(const Graph& train, const RecomputeChoice& choice);

}  // namespace plimsoll
