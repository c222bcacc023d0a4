// attention and attention_grad. By tensor cores where their tiles do what the op asks, by plain arithmetic
// otherwise.
#include <cmath>
#include <string>

#include "ops/attention_shape.h"
#include "ops/gpu_attention_plain.h"
#include "ops/gpu_attention_plain_grad.h"
#include "ops/gpu_attention_tiles.h"
#include "ops/gpu_dispatch.h"
#include "ops/name_hash.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// `shift`: how many operands stand before those that only some attentions have.
GpuAttentionDropout dropout_of(const GpuBinding& b, size_t shift) {
  if (!b.op().attrs.contains("dropout")) return {};
  const double p = b.op().attr_float("dropout");
  return {.samples = b.input<int32_t>(7 + shift),
          .positions = b.input<int32_t>(8 + shift),
          .scope_hash = name_hash(".probabilities", name_hash(b.op().scope)),
          .threshold = static_cast<uint32_t>(p * 4294967296.0),
          .factor = static_cast<float>(1.0 / (1.0 - p))};
}

template <class T>
GpuAttention<T> operands_of(const GpuBinding& b, size_t shift) {
  const Op& op = b.op();
  require_tensor_cores(b, b.input_tensor(0).dtype);
  const AttentionShape shape = attention_shape(b.graph(), op);
  if (shape.head_dim > kAttentionMostDims || shape.head_dim % 8 != 0)
    refuse_on_gpu(b, "attention heads of " + std::to_string(shape.head_dim) +
                         " values: a multiple of 8 up to " + std::to_string(kAttentionMostDims) + " goes");
  const auto* starts = b.input<int32_t>(3 + shift);
  const auto* key_starts = b.input<int32_t>(5 + shift);
  return {.q = b.input<T>(0),
          .k = b.input<T>(1),
          .v = b.input<T>(2),
          .queries = {starts, b.input_tensor(0).shape[0]},
          .keys = {key_starts == nullptr ? starts : key_starts, b.input_tensor(1).shape[0]},
          .step = b.input<double>(4 + shift),
          .sequences = live_sequences_of(op.axis),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .head_dim = static_cast<int>(shape.head_dim),
          .window = static_cast<int>(op.attr_int("window")),
          .causal = shape.causal,
          .scale = op.attrs.contains("scale") ? static_cast<float>(op.attr_float("scale"))
                                              : 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
          .bias = gpu_bias_of<T>(b, shape, 6 + shift),
          .dropout = dropout_of(b, shift)};
}

// Planned sizes that grids follow from.
struct Extents {
  CardFacts card;
  bool fits_tiles;
  int64_t queries, keys;  // of the longest sequence
  unsigned sequences, heads, kv_heads;

  Extents(const GpuBinding& b, size_t shift)
      : card(b.card()),
        fits_tiles(attention_fits_tiles(b.graph(), b.op())),
        queries(b.op().attr_int("length")),
        keys(b.op().attrs.contains("key_length") ? b.op().attr_int("key_length") : queries),
        sequences(static_cast<unsigned>(b.input_tensor(3 + shift).shape[0] - 1)) {
    const AttentionShape shape = attention_shape(b.graph(), b.op());
    heads = static_cast<unsigned>(shape.heads);
    kv_heads = static_cast<unsigned>(shape.kv_heads);
  }
  [[nodiscard]] gpu::Dim3 query_grid(int64_t rows) const {
    return {gpu::blocks_of(queries, rows), heads, sequences};
  }
  [[nodiscard]] gpu::Dim3 key_grid(int64_t rows) const {
    return {gpu::blocks_of(keys, rows), kv_heads, sequences};
  }
};

template <class T>
bool has_extras(const GpuAttention<T>& a) {
  return a.bias.table != nullptr || a.dropout.samples != nullptr;
}
template <int D, int kGroups, int kKeys, bool kExtras, class T>
void launch_tiles(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  const int shared = attention_shared_bytes<D, kGroups, kKeys, kExtras>(f.a);
  gpu::launch_with_shared(stream, extents.query_grid(kGroups * 64), {kAttentionThreads},
                          static_cast<unsigned>(shared), attention_tiles<T, D, kGroups, kKeys, kExtras>, f);
}
// Tiles of 128 queries read keys half as often as those of 64, where there are enough to keep the card busy.
// With 64 keys they want more shared memory than small cards have for two blocks.
template <class T>
void launch_forward_tiles(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  const GpuAttention<T>& a = f.a;
  if (has_extras(a))
    return a.head_dim <= 64 ? launch_tiles<64, 1, 64, true>(stream, f, extents)
                            : launch_tiles<128, 1, 64, true>(stream, f, extents);
  constexpr int64_t kForTwoBlocks = int64_t{132} * 1024;
  const bool tall = a.queries.tokens * a.heads >= int64_t{2} * 128 * extents.card.multiprocessors;
  if (a.head_dim <= 64)
    return tall ? launch_tiles<64, 2, 64, false>(stream, f, extents)
                : launch_tiles<64, 1, 64, false>(stream, f, extents);
  if (!tall) return launch_tiles<128, 1, 64, false>(stream, f, extents);
  if (extents.card.shared_bytes_per_block < kForTwoBlocks)
    return launch_tiles<128, 2, 32, false>(stream, f, extents);
  launch_tiles<128, 2, 64, false>(stream, f, extents);
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
gpu::Dim3 times(gpu::Dim3 grid, unsigned parts) { return {grid.x, grid.y * parts, grid.z}; }

template <class T>
void launch_forward_plain(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  with_plain_columns(f.a, [&]<int kColumns>(unsigned parts) {
    gpu::launch_with_shared(stream, times(extents.query_grid(kPlainTile), parts), {kPlainThreads},
                            unsigned{kPlainSharedBytes}, attention_plain<T, kColumns>, f);
  });
}
template <class T>
void launch_backward_plain(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  with_plain_columns(g.a, [&]<int kColumns>(unsigned parts) {
    gpu::launch_with_shared(stream, times(extents.key_grid(kPlainTile), parts), {kPlainThreads},
                            unsigned{kPlainSharedBytes}, attention_grad_keys_plain<T, kColumns>, g);
    gpu::launch_with_shared(stream, times(extents.query_grid(kPlainTile), parts), {kPlainThreads},
                            unsigned{kPlainSharedBytes}, attention_grad_queries_plain<T, kColumns>, g);
  });
}

template <class T>
void clear_padding_of(gpu::Stream& stream, T* rows, int64_t width, const GpuSequences& where,
                      const GpuAttention<T>& a) {
  gpu::launch(stream, {static_cast<unsigned>(where.tokens)}, {kPaddingThreads}, clear_padding<T>, rows, width,
              where, a.step, a.sequences);
}

template <class T>
void launch_forward(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  const GpuAttention<T>& a = f.a;
  clear_padding_of(stream, f.o, int64_t{a.heads} * a.head_dim, a.queries, a);
  gpu::launch(stream, {static_cast<unsigned>(a.queries.tokens)}, {kPaddingThreads}, clear_padding<float>,
              f.lse, a.heads, a.queries, a.step, a.sequences);
  if constexpr (sizeof(T) == 2) {
    if (extents.fits_tiles) return launch_forward_tiles(stream, f, extents);
  }
  launch_forward_plain(stream, f, extents);
}

template <int D, bool kExtras, class T>
void launch_backward_tiles(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  const int for_keys = grad_key_shared_bytes<D, kExtras>(g.a);
  const int for_queries = grad_query_shared_bytes<D, kExtras>(g);
  gpu::launch_with_shared(stream, extents.key_grid(kAttentionTile), {kAttentionThreads},
                          static_cast<unsigned>(for_keys), attention_grad_key_tiles<T, D, kExtras>, g);
  gpu::launch_with_shared(stream, extents.query_grid(kAttentionTile), {kAttentionThreads},
                          static_cast<unsigned>(for_queries), attention_grad_query_tiles<T, D, kExtras>, g);
}

template <class T>
void launch_backward(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  const GpuAttention<T>& a = g.a;
  const int64_t heads_of_rows = a.queries.tokens * a.heads;
  gpu::launch(stream, {gpu::blocks_of(heads_of_rows, kDeltaWarps)}, {kDeltaWarps * 32}, attention_delta<T>,
              g.o, g.d_o, g.delta, heads_of_rows, a.head_dim);
  clear_padding_of(stream, g.d_q, int64_t{a.heads} * a.head_dim, a.queries, a);
  clear_padding_of(stream, g.d_k, int64_t{a.kv_heads} * a.head_dim, a.keys, a);
  clear_padding_of(stream, g.d_v, int64_t{a.kv_heads} * a.head_dim, a.keys, a);
  if constexpr (sizeof(T) == 2) {
    if (extents.fits_tiles) {
      const bool narrow = a.head_dim <= 64;
      if (has_extras(a))
        return narrow ? launch_backward_tiles<64, true>(stream, g, extents)
                      : launch_backward_tiles<128, true>(stream, g, extents);
      return narrow ? launch_backward_tiles<64, false>(stream, g, extents)
                    : launch_backward_tiles<128, false>(stream, g, extents);
    }
  }
  launch_backward_plain(stream, g, extents);
}

// The gradient of a bias that trains.
template <class G>
struct BiasGradient {
  G* table = nullptr;  // null: it does not
  unsigned buckets = 0;
  Accumulation accumulation;
};

template <class T, class G>
void launch_bias_grad(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents,
                      const BiasGradient<G>& bias) {
  if (bias.table == nullptr) return;
  gpu::launch(stream, {bias.buckets, extents.heads}, {32},
              attention_grad_table_of_tiles<static_cast<int>(kGpuAttentionTile), T, G>, g.a,
              static_cast<int>(gpu::blocks_of(extents.queries, kGpuAttentionTile)), g.bias_sums,
              bias.accumulation, bias.table);
}

template <class T, class G>
BoundCall make_grad(const GpuBinding& b) {
  constexpr size_t kShift = 3;  // o, lse and d_o
  GpuAttentionGrad<T> g{.a = operands_of<T>(b, kShift),
                        .o = b.input<T>(3),
                        .lse = b.input<float>(4),
                        .d_o = b.input<T>(5),
                        .delta = reinterpret_cast<float*>(b.scratch()),
                        .d_q = b.output<T>(0),
                        .d_k = b.output<T>(1),
                        .d_v = b.output<T>(2)};
  BiasGradient<G> bias;
  const AttentionShape shape = attention_shape(b.graph(), b.op());
  if (shape.bias_trains) {
    bias = {.table = b.output<G>(3),
            .buckets = static_cast<unsigned>(shape.buckets),
            .accumulation = Accumulation{b.op().attr_int("accumulate"), g.a.step}};
    g.bias_sums = g.delta + b.input_tensor(0).shape[0] * shape.heads;
  }
  return [g, bias, extents = Extents(b, kShift), &stream = b.stream()] {
    launch_backward(stream, g, extents);
    launch_bias_grad(stream, g, extents, bias);
  };
}

}  // namespace

BoundCall bind_gpu_attention(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GpuAttentionForward<T> f{operands_of<T>(b, 0), b.output<T>(0), b.output<float>(1)};
    return [f, extents = Extents(b, 0), &stream = b.stream()] { launch_forward(stream, f, extents); };
  });
}

BoundCall bind_gpu_attention_grad(const GpuBinding& b) {
  const DType gradient = b.op().has_output(3) ? b.output_tensor(3).dtype : DType::f32;
  return with_gpu_types(b, b.input_tensor(0).dtype, gradient,
                        [&](auto t, auto g) -> BoundCall { return make_grad<decltype(t), decltype(g)>(b); });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
