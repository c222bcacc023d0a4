// The share of each block in a micro-step that was measured as it is: what it keeps, what is alive while it runs, what it
// computes. Blocks that differ are counted one by one, so that programs of blocks at other points of recomputation are
// bounded by those at one point, before they are built.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/program_layout.h"

namespace plimsoll {

// By block of the one stack; none: the program has no backward pass, or several stacks.
struct BlockShares {
  std::vector<int64_t>
      kept;  // bytes of the device that its forward pass leaves to its own backward pass or the next block's
  // The most that is alive on the device at an op of it, without what blocks two and more below it keep.
  std::vector<int64_t> most, most_in_backward;
  std::vector<int64_t> most_at_loss;  // likewise, between both passes, by rows of logits at a time
  // Seconds of ops that compute, and of products and mixers of the forward pass, which a block is not repeated without.
  std::vector<double> compute, products;

  // Copies of gradients that are there from before the backward pass of the last block until behind that of the first: of
  // embeddings that are tied to the head. Whatever blocks recompute.
  int64_t across = 0;

  [[nodiscard]] bool any() const { return !kept.empty(); }
};

// The workspace of an op of the loss, which goes by the rows of logits.
struct LossWorkspace {
  size_t at = 0;                   // op
  std::span<const int64_t> bytes;  // by rows
};

BlockShares block_shares_of(const Graph& graph, const std::vector<StorageLife>& lives,
                            const std::vector<double>& seconds, const std::vector<LossWorkspace>& losses,
                            size_t chunks);

// Lower bounds of a program whose first layers are at one point and the rest at another, by programs of each point: of
// what is alive on the device, and by how much more there is of what layers add up to (seconds) than with all at the
// second point. Blocks next to the change count for neither.
int64_t alive_between(const BlockShares& first, const BlockShares& rest, int64_t first_layers, size_t chunk);
double more_between(std::span<const double> first, std::span<const double> rest, int64_t first_layers);
// The same of all layers at `block` in segments of so many, by the program without segments in which nothing moves but
// weights, fewer layers ahead than any segment has. `inputs_stay`: those of other segments, on the device.
int64_t alive_in_segments(const BlockShares& block, int64_t segment, bool inputs_stay);
double longer_in_segments(const BlockShares& block, int64_t segment);

}  // namespace plimsoll
