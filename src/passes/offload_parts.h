// The parts of offload, each a pass over one program that leaves its waits next to their transfers
// (schedule_transfers sets them apart). Tensors that the choice leaves on the device stay as they are.
#pragma once

#include "passes/offload.h"

namespace plimsoll {

// Weights of the blocks live in their space. Every block's forward and backward pass fetches its own copies.
Graph offload_weights(Graph program, const OffloadChoice& choice, const OffloadContext& context);

// Between the forward and the backward pass activations live in the space that the choice names, but for
// those that the last block's backward pass reads: they are needed at once.
Graph offload_activations(Graph train, const OffloadChoice& choice, const OffloadContext& context);

// Gradients are stored as soon as they are complete, and their squares taken before that. With accumulation,
// they are fetched to be added to. Where several ranks add them up, the update takes the squares.
Graph offload_gradients_of_train(Graph train, const OffloadChoice& choice, const OffloadContext& context,
                                 bool several_ranks = false);
// Its counterpart: the update finds the squares there, or fetches gradients for them.
Graph offload_gradients_of_update(Graph update, const OffloadChoice& choice, const OffloadContext& context,
                                  bool several_ranks = false);

// Optimizer states and master copies live in their space.
Graph offload_states(Graph program, const OffloadChoice& choice);

// Optimizer ops with operands that have to be fetched run slice by slice.
Graph slice_updates(Graph program, const OffloadChoice& choice, const OffloadContext& context);

}  // namespace plimsoll
