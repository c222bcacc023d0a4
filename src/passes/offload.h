// Offloading: tensors whose home is not the device are fetched ahead of need and stored when done
// (docs/explanation/recompute-and-offload.md).
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// The space in which tensors of each kind are kept.
struct OffloadChoice {
  Space states = Space::device;       // optimizer states and master copies
  Space gradients = Space::device;    // of the effective batch
  Space weights = Space::device;      // of the blocks (embedding, head, last norm and adapters stay)
  Space activations = Space::device;  // those that wait for the backward pass
  // How many layers (micro-step) or slices (update) a transfer starts ahead of need; 0: no overlap.
  int64_t prefetch = 1;
  // Elements that an update fetches at a time, a multiple of kSliceUnit. 4 Mi elements of f32 are 16 MiB:
  // long enough for a disk's full rate.
  int64_t slice_elements = int64_t{4} << 20;
  // Smaller tensors stay on the device: their transfer takes longer than their bytes are worth.
  int64_t smallest_bytes = 65536;

  [[nodiscard]] bool any() const {
    return states != Space::device || gradients != Space::device || weights != Space::device ||
           activations != Space::device;
  }
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
