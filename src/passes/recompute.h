// Activation checkpointing: activations that the backward pass reads are dropped after the forward pass and
// recomputed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace plimsoll {

// The activations that a block drops, at each point more than the one before (docs/explanation/recompute-and-offload.md), by the
// classes of its ops (ops/rule.h):
//   none       nothing
//   act        the product of the MLP's gate, and what follows from it alone
//   cheap      all that follows from kept values without a matrix product: norms, the gate's product, dropout
//   mlp        that, and everything after the residual sum behind the last mixer (attention)
//   attention  everything but the mixers' outputs (of attention: with its log-sum-exp)
//   block      everything; the block's input alone stays
enum class RecomputePoint : uint8_t { none, act, cheap, mlp, attention, block };
inline constexpr int kNumRecomputePoints = 6;
std::string_view to_string(RecomputePoint point);
// Throws UsageError.
RecomputePoint parse_recompute_point(std::string_view text);

struct RecomputeChoice {
  std::vector<RecomputePoint> layers;  // by block of the graph; empty: nothing is dropped anywhere
  // Every run of consecutive blocks of one stack at `block` is cut into segments of so many. A segment keeps
  // the input of its first block only: its whole forward pass is repeated once for the inputs of the other
  // blocks, and then each block again for its own backward pass.
  int64_t segment = 1;

  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

// The points of a model's layers in the form that recipes state and the search chooses from: the first ones at one
// point, the rest at another; or all at `block`, in segments.
struct RecomputeLevels {
  RecomputePoint first = RecomputePoint::none, rest = RecomputePoint::none;
  int64_t first_layers = 0;  // at `first`; 0: all are at `rest`
  int64_t segment = 1;

  RecomputeLevels() = default;
  RecomputeLevels(RecomputePoint all)  // NOLINT(google-explicit-constructor): every layer is at that point
      : first(all), rest(all) {}
  RecomputeLevels(RecomputePoint first, int64_t first_layers, RecomputePoint rest)
      : first(first), rest(rest), first_layers(first_layers) {}
  // True if every layer is at the same point, by itself.
  [[nodiscard]] bool is_one_point() const { return first_layers == 0 && segment == 1; }
  [[nodiscard]] RecomputeChoice in_layers(int64_t layers) const;
  friend bool operator==(const RecomputeLevels&, const RecomputeLevels&) = default;
};
// The levels of a choice that has this form; of any other, none.
std::optional<RecomputeLevels> levels_of(const RecomputeChoice& choice);

// `train` is differentiated. Values are recomputed right before the first backward op that needs them, once
// for a block's backward pass, by the same op in the same scope, so that dropout sees the same numbers: the
// same bits. Outputs of ops whose rule says `rematerialise` are recomputed for every reader, whatever the
// choice is.
Graph recompute(Graph train, const RecomputeChoice& choice);

}  // namespace plimsoll
