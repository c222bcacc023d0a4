// Converts an attention op to the shape that its kernels take; rule and binding share it.
#pragma once

#include "graph/graph.h"
#include "ops/attention/attention_scratch.h"

namespace plimsoll {

// Returns true if the sequences of attention, or of its gradient, are segments of trees.
bool has_parents(const Op& op);
// The shape of any of the three kinds of attention.
AttentionShape attention_shape(const Graph& graph, const Op& op);
// The factor of logits, their cap (0: none), and the key of the dropout of probabilities.
float attention_scale(const Op& op);
float attention_softcap(const Op& op);
uint64_t attention_dropout_key(const Op& op);
// Bytes of attention_grad's workspace, behind the kernel's own: the gradient of a bias before it is added to
// what there is.
int64_t attention_bias_sums_bytes(const AttentionShape& shape);

// Returns whether the tensor cores of GPUs compute attention or its gradient (ops/attention/gpu_attention_tiles.h):
// 16-bit values, heads of up to 128 in eights and a bias that goes into a block's memory; or heads of up to 256, with a
// cap or without, where there is neither bias nor dropout nor a tree. Else plain
// arithmetic in f32 does (ops/attention/gpu_attention_plain.h), at a share of the card's f32 rate.
bool attention_fits_tiles(const Graph& graph, const Op& op);
inline constexpr int64_t kGpuAttentionTile = 64;  // queries
// Sums of the gradient of a bias that trains: of each bucket, by tile, head and sequence.
int64_t attention_tile_sums(const AttentionShape& shape);

}  // namespace plimsoll
