// Launches attention's kernels, for sequences (attention_gpu.cu) and trees (attention_trees_gpu.cu).
// QuerySite and KeySite: what blocks that have queries, and keys, work on.
#pragma once

#include <string>

#include "ops/attention/attention_shape.h"
#include "ops/attention/gpu_attention_plain.h"
#include "ops/attention/gpu_attention_plain_grad.h"
#include "ops/attention/gpu_attention_tiles.h"
#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// Binds attention ops that have parents.
BoundCall bind_tree_attention(const GpuBinding& binding);
BoundCall bind_tree_attention_grad(const GpuBinding& binding);

// In what follows `at` are the operands of attention, or of its gradient.
template <class at>
GpuAttentionDropout dropout_of(const GpuBinding& b) {
  if (!b.op().attrs.contains("dropout")) return {};
  const double p = b.op().attr_float("dropout");
  return {.samples = b.input<int32_t>(at::samples),
          .positions = b.input<int32_t>(at::positions),
          .scope_hash = attention_dropout_key(b.op()),
          .threshold = static_cast<uint32_t>(p * 4294967296.0),
          .factor = static_cast<float>(1.0 / (1.0 - p))};
}

template <class T, class at>
GpuAttention<T> operands_of(const GpuBinding& b) {
  const Op& op = b.op();
  require_tensor_cores(b, b.input_tensor(at::q).dtype);
  const AttentionShape shape = attention_shape(b.graph(), op);
  if (shape.head_dim > kAttentionMostDims || shape.head_dim % 8 != 0)
    refuse_on_gpu(b, "attention heads of " + std::to_string(shape.head_dim) +
                         " values: a multiple of 8 up to " + std::to_string(kAttentionMostDims) + " goes");
  const auto* starts = b.input<int32_t>(at::seq_starts);
  const auto* key_starts = b.input<int32_t>(at::key_starts);
  return {.q = b.input<T>(at::q),
          .k = b.input<T>(at::k),
          .v = b.input<T>(at::v),
          .queries = {starts, b.input_tensor(at::q).shape[0]},
          .keys = {key_starts == nullptr ? starts : key_starts, b.input_tensor(at::k).shape[0]},
          .step = b.input<double>(at::step),
          .sequences = live_sequences_of(op.axis),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .window = static_cast<int>(op.attr_int("window")),
          .causal = shape.causal,
          .scale = attention_scale(op),
          .softcap = attention_softcap(op),
          .bias = gpu_bias_of<T>(b, shape, at::bias_table),
          .dropout = dropout_of<at>(b),
          .trees = {.parents = b.input<int32_t>(at::parents)}};
}

// The sizes that grids follow from.
struct Extents {
  CardFacts card;
  bool fits_tiles;
  TileGrid queries, keys;
  unsigned heads, kv_heads;

  template <class at>
  Extents(const GpuBinding& b, at)
      : card(b.card()),
        fits_tiles(attention_fits_tiles(b.graph(), b.op())),
        queries{.starts = b.sent<int32_t>(at::seq_starts),
                .step = b.sent<double>(at::step),
                .which = live_sequences_of(b.op().axis),
                .tokens = b.input_tensor(at::q).shape[0],
                .sequences = b.input_tensor(at::seq_starts).shape[0] - 1,
                .longest = b.op().attr_int("length")},
        keys(queries) {
    if (b.op().has_input(at::key_starts)) {
      keys.starts = b.sent<int32_t>(at::key_starts);
      keys.tokens = b.input_tensor(at::k).shape[0];
      keys.longest = b.op().attr_int("key_length");
    }
    const AttentionShape shape = attention_shape(b.graph(), b.op());
    heads = static_cast<unsigned>(shape.heads);
    kv_heads = static_cast<unsigned>(shape.kv_heads);
  }
  // `rows`: of a tile.
  [[nodiscard]] gpu::Dim3 query_grid(const gpu::Stream& stream, int rows) const {
    return {queries.blocks(stream, rows), heads};
  }
  [[nodiscard]] gpu::Dim3 key_grid(const gpu::Stream& stream, int rows) const {
    return {keys.blocks(stream, rows), kv_heads};
  }
};

template <int D, int kGroups, int kKeys, bool kExtras, class Site, bool kCapped = false, class T>
void launch_tiles(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  const int shared = attention_shared_bytes<D, kGroups, kKeys, kExtras>(f.a);
  gpu::launch_with_shared(stream, extents.query_grid(stream, kGroups * 64), {kAttentionThreads},
                          static_cast<unsigned>(shared),
                          attention_tiles<T, D, kGroups, kKeys, kExtras, Site, kCapped>, f);
}
template <int D, bool kExtras, class QuerySite, class KeySite, bool kCapped = false, class T>
void launch_backward_tiles(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  const int for_keys = grad_key_shared_bytes<D, kExtras>(g.a);
  const int for_queries = grad_query_shared_bytes<D, kExtras>(g);
  gpu::launch_with_shared(stream, extents.key_grid(stream, kAttentionTile), {kAttentionThreads},
                          static_cast<unsigned>(for_keys),
                          attention_grad_key_tiles<T, D, kExtras, KeySite, kCapped>, g);
  gpu::launch_with_shared(stream, extents.query_grid(stream, kAttentionTile), {kAttentionThreads},
                          static_cast<unsigned>(for_queries),
                          attention_grad_query_tiles<T, D, kExtras, QuerySite, kCapped>, g);
}

// Calls launch<kColumns>(parts): how many of a head's values a block sums, and how many blocks there are for
// a head. 16-bit values seldom come here, so that they have one form.
template <class T, class Launch>
void with_plain_columns(const GpuAttention<T>& a, Launch launch) {
  if constexpr (sizeof(T) == 4) {
    if (a.head_dim <= 64) return launch.template operator()<64>(1U);
  }
  launch.template operator()<128>(static_cast<unsigned>(plain_parts<128>(a.head_dim)));
}
inline gpu::Dim3 times(gpu::Dim3 grid, unsigned parts) { return {grid.x, grid.y * parts}; }

template <class Site, class T>
void launch_forward_plain(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  with_plain_columns(f.a, [&]<int kColumns>(unsigned parts) {
    gpu::launch_with_shared(stream, times(extents.query_grid(stream, kPlainTile), parts), {kPlainThreads},
                            unsigned{kPlainSharedBytes}, attention_plain<T, kColumns, Site>, f);
  });
}
template <class QuerySite, class KeySite, class T>
void launch_backward_plain(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  with_plain_columns(g.a, [&]<int kColumns>(unsigned parts) {
    gpu::launch_with_shared(stream, times(extents.key_grid(stream, kPlainTile), parts), {kPlainThreads},
                            unsigned{kPlainSharedBytes}, attention_grad_keys_plain<T, kColumns, KeySite>, g);
    gpu::launch_with_shared(stream, times(extents.query_grid(stream, kPlainTile), parts), {kPlainThreads},
                            unsigned{kPlainSharedBytes}, attention_grad_queries_plain<T, kColumns, QuerySite>,
                            g);
  });
}

template <class T>
void clear_padding_of(gpu::Stream& stream, T* rows, int64_t width, const GpuSequences& where,
                      const GpuAttention<T>& a) {
  gpu::launch(stream, {static_cast<unsigned>(where.tokens)}, {kPaddingThreads}, clear_padding<T>, rows, width,
              where, a.step, a.sequences);
}

// Clears what kernels do not write: padding, o and lse; and sums of d_o * o, for the backward.
template <class T>
void begin_forward(gpu::Stream& stream, const GpuAttentionForward<T>& f) {
  const GpuAttention<T>& a = f.a;
  clear_padding_of(stream, f.o, int64_t{a.heads} * a.head_dim, a.queries, a);
  gpu::launch(stream, {static_cast<unsigned>(a.queries.tokens)}, {kPaddingThreads}, clear_padding<float>,
              f.lse, a.heads, a.queries, a.step, a.sequences);
}
template <class T>
void begin_backward(gpu::Stream& stream, const GpuAttentionGrad<T>& g) {
  const GpuAttention<T>& a = g.a;
  const int64_t heads_of_rows = a.queries.tokens * a.heads;
  gpu::launch(stream, {gpu::blocks_of(heads_of_rows, kDeltaWarps)}, {kDeltaWarps * 32}, attention_delta<T>,
              g.o, g.d_o, g.delta, heads_of_rows, a.head_dim);
  clear_padding_of(stream, g.d_q, int64_t{a.heads} * a.head_dim, a.queries, a);
  clear_padding_of(stream, g.d_k, int64_t{a.kv_heads} * a.head_dim, a.keys, a);
  clear_padding_of(stream, g.d_v, int64_t{a.kv_heads} * a.head_dim, a.keys, a);
}

template <class T>
GpuAttentionForward<T> forward_of(const GpuBinding& b) {
  using at = operand::attention;
  return {operands_of<T, at>(b), b.output<T>(at::o), b.output<float>(at::lse)};
}
template <class T>
GpuAttentionGrad<T> backward_of(const GpuBinding& b) {
  using at = operand::attention_grad;
  return {.a = operands_of<T, at>(b),
          .o = b.input<T>(at::o),
          .lse = b.input<float>(at::lse),
          .d_o = b.input<T>(at::d_o),
          .delta = reinterpret_cast<float*>(b.scratch()),
          .d_q = b.output<T>(at::d_q),
          .d_k = b.output<T>(at::d_k),
          .d_v = b.output<T>(at::d_v)};
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
