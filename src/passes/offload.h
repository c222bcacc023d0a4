// Offload: tensors whose home is not the device, fetched ahead of need and stored when done.
#pragma once

#include "graph/graph.h"

namespace plimsoll {

// Home of each kind of tensor.
struct OffloadChoice {
  Space states = Space::device;       // optimizer states and master copies
  Space gradients = Space::device;    // of the effective batch
  Space weights = Space::device;      // of the layers (embedding, head and last norm stay)
  Space activations = Space::device;  // those that wait for the backward pass
  // How many layers (micro-step) or slices (update) a transfer starts ahead of need; 0: no overlap.
  int64_t prefetch = 1;

  [[nodiscard]] bool any() const {
    return states != Space::device || gradients != Space::device || weights != Space::device ||
           activations != Space::device;
  }
  friend bool operator==(const OffloadChoice&, const OffloadChoice&) = default;
};

}  // namespace plimsoll
