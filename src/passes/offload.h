// Offloading: tensors that are not kept on the device are fetched ahead of need and stored when done
// (docs/explanation/recompute-and-offload.md).
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <string_view>
#include <utility>

#include "graph/graph.h"

namespace plimsoll {

// The places of one part of a run, block by block: that of the first `on_disk` blocks is on disk, of the next
// `on_host` on the host, of the rest on the device. What belongs to no block goes with the last one.
struct PartTarget {
  // More than any model has: all of them, or all that are left.
  static constexpr int64_t kEveryBlock = int64_t{1} << 32;

  int64_t on_disk = 0;
  int64_t on_host = 0;

  PartTarget() = default;
  PartTarget(int64_t disk, int64_t host) : on_disk(disk), on_host(host) {}
  PartTarget(Space whole)  // NOLINT(google-explicit-constructor): all of it is in that space
      : on_disk(whole == Space::disk ? kEveryBlock : 0), on_host(whole == Space::host ? kEveryBlock : 0) {}

  [[nodiscard]] bool any() const { return on_disk > 0 || on_host > 0; }
  // True if all of it is in one place, which may be the device.
  [[nodiscard]] bool is_whole() const {
    return !any() || on_disk >= kEveryBlock || (on_disk == 0 && on_host >= kEveryBlock);
  }
  // True if some of it stays on the device.
  [[nodiscard]] bool stays() const { return on_disk < kEveryBlock && on_host < kEveryBlock; }
  // Blocks that leave the device.
  [[nodiscard]] int64_t moved() const { return std::min(on_disk + on_host, kEveryBlock); }
  [[nodiscard]] Space of(BlockId block) const {
    const int64_t at = block == kNoBlock ? kEveryBlock - 1 : block;
    if (at < on_disk) return Space::disk;
    return at - on_disk < on_host ? Space::host : Space::device;
  }
  // The same with counts that a model of so many blocks has, in one form.
  [[nodiscard]] PartTarget in_blocks(int64_t blocks) const;
  friend auto operator<=>(const PartTarget&, const PartTarget&) = default;
};

// The parts of a run, in the order of reports.
enum class Part : uint8_t { states, gradients, weights, activations };
inline constexpr std::array<Part, 4> kEveryPart = {Part::states, Part::gradients, Part::weights,
                                                   Part::activations};
std::string_view to_string(Part part);
using OffloadTargets = std::array<PartTarget, 4>;  // by part

// The most layers by which a transfer starts ahead of need (docs/decisions/29-offload-targets.md).
inline constexpr int64_t kMostPrefetch = 2;

// The places of tensors of each kind.
struct OffloadChoice {
  PartTarget states;       // optimizer states and master copies
  PartTarget gradients;    // of the effective batch
  PartTarget weights;      // of the blocks (embedding, head, last norm and adapters stay)
  PartTarget activations;  // those that wait for the backward pass
  // The number of layers (micro-step) or slices (update) by which a transfer starts ahead; 0: no overlap.
  int64_t prefetch = 1;
  // Elements that an update fetches at a time, a multiple of kSliceUnit. 4 Mi elements of f32 are 16 MiB:
  // long enough for a disk's full rate.
  int64_t slice_elements = int64_t{4} << 20;
  // Smaller tensors stay on the device: their transfer takes longer than their bytes are worth.
  int64_t smallest_bytes = 65536;

  [[nodiscard]] bool any() const {
    return states.any() || gradients.any() || weights.any() || activations.any();
  }
  [[nodiscard]] const PartTarget& of(Part part) const {
    return part == Part::states      ? states
           : part == Part::gradients ? gradients
           : part == Part::weights   ? weights
                                     : activations;
  }
  PartTarget& of(Part part) { return const_cast<PartTarget&>(std::as_const(*this).of(part)); }
  void set_targets(const OffloadTargets& targets) {
    for (const Part part : kEveryPart) of(part) = targets[static_cast<size_t>(part)];
  }
  [[nodiscard]] OffloadTargets targets() const { return {states, gradients, weights, activations}; }
  [[nodiscard]] bool moves(const Tensor& tensor) const { return tensor.bytes() >= smallest_bytes; }
  friend bool operator==(const OffloadChoice&, const OffloadChoice&) = default;
};

// Facts that the passes need in addition to the choice.
struct OffloadContext {
  bool reaches_host = true;  // ops of the device compute on host tensors: those need no transfer
  int64_t accumulation = 1;

  [[nodiscard]] bool transfers(Space space) const {
    return space == Space::disk || (space == Space::host && !reaches_host);
  }
};

}  // namespace plimsoll
