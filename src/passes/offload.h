// Offload: tensors whose home is not the device, fetched ahead of need and stored when done
// (docs/offload.md).
#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll {

// Home of each kind of tensor.
struct OffloadChoice {
  Space states = Space::device;       // optimizer states and master copies
  Space gradients = Space::device;    // of the effective batch
  Space weights = Space::device;      // of the layers (embedding, head, norms and adapters stay)
  Space activations = Space::device;  // those that wait for the backward pass
  // How many layers (micro-step) or slices (update) a transfer starts ahead of need; 0: no overlap.
  int64_t prefetch = 1;
  // Elements that an update fetches at a time, a multiple of kSliceUnit. 4 Mi elements of f32 are 16 MiB:
  // long enough for a disk's full rate.
  int64_t slice_elements = int64_t{4} << 20;

  [[nodiscard]] bool any() const {
    return states != Space::device || gradients != Space::device || weights != Space::device ||
           activations != Space::device;
  }
  friend bool operator==(const OffloadChoice&, const OffloadChoice&) = default;
};

// Smaller tensors stay on the device: their transfer takes longer than their bytes are worth.
inline constexpr int64_t kSmallestOffload = 65536;
bool worth_moving(const Tensor& tensor);

// What the passes have to know besides the choice.
struct OffloadContext {
  bool reaches_host = true;  // ops of the device compute on host tensors: those need no transfer
  int64_t accumulation = 1;

  [[nodiscard]] bool transfers(Space space) const {
    return space == Space::disk || (space == Space::host && !reaches_host);
  }
};

// Weights of the layers live in `space`. Every layer's forward and backward pass fetches its own copies.
Graph offload_weights(Graph program, Space space, const OffloadContext& context);

// What the forward pass leaves to the backward pass lives in `space` meanwhile, but for what the last layer's
// backward pass reads: that is needed at once.
Graph offload_activations(Graph train, Space space, const OffloadContext& context);

// Gradients are stored as soon as they are complete, and their squares taken before that. With accumulation,
// they are fetched to be added to.
Graph offload_gradients_of_train(Graph train, Space space, const OffloadContext& context);
// Its counterpart: the update finds the squares there.
Graph offload_gradients_of_update(Graph update, Space space, const OffloadContext& context);

// Optimizer states and master copies live in `space`.
Graph offload_states(Graph program, Space space);

// Optimizer ops with operands that have to be fetched run slice by slice.
Graph slice_updates(Graph program, int64_t slice_elements, const OffloadContext& context);

// All of it, for the run's programs in any order (micro-step, update, evaluation; their ops' stages tell them
// apart). The bits of all results stay.
std::vector<Graph> offload(std::vector<Graph> programs, const OffloadChoice& choice,
                           const OffloadContext& context);

}  // namespace plimsoll
