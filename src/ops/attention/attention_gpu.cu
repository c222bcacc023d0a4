// attention and attention_grad. By tensor cores where their tiles do what the op asks, by plain arithmetic
// otherwise. Of trees: attention_trees_gpu.cu.
#include "ops/attention/gpu_attention_launch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

template <class T>
bool has_extras(const GpuAttention<T>& a) {
  return a.bias.table != nullptr || a.dropout.samples != nullptr;
}
template <int D, int kGroups, int kKeys, bool kExtras, class T>
void launch_sequences(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  launch_tiles<D, kGroups, kKeys, kExtras, GpuAttentionSite<T>>(stream, f, extents);
}
// Heads of more than 128 values, and logits below a cap, in tiles of 64 queries.
template <bool kCapped, class T>
void launch_wide_or_capped(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  using Site = GpuAttentionSite<T>;
  if (f.a.head_dim > 128) return launch_tiles<256, 1, 32, false, Site, kCapped>(stream, f, extents);
  return f.a.head_dim > 64 ? launch_tiles<128, 1, 64, false, Site, kCapped>(stream, f, extents)
                           : launch_tiles<64, 1, 64, false, Site, kCapped>(stream, f, extents);
}
template <bool kCapped, class T>
void launch_wide_or_capped(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  using Site = GpuAttentionSite<T>;
  if (g.a.head_dim > 128) return launch_backward_tiles<256, false, Site, Site, kCapped>(stream, g, extents);
  return g.a.head_dim > 64 ? launch_backward_tiles<128, false, Site, Site, kCapped>(stream, g, extents)
                           : launch_backward_tiles<64, false, Site, Site, kCapped>(stream, g, extents);
}
// Shared memory that the backward of wide heads takes, which the smallest cards lack.
constexpr int64_t kForWideGradients = int64_t{96} * 1024;

// Tiles of 128 queries read keys half as often as those of 64, where there are enough to keep the card busy.
// With 64 keys they want more shared memory than small cards have for two blocks.
template <class T>
void launch_forward_tiles(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  const GpuAttention<T>& a = f.a;
  if (a.softcap > 0) return launch_wide_or_capped<true>(stream, f, extents);
  if (a.head_dim > 128) return launch_wide_or_capped<false>(stream, f, extents);
  if (has_extras(a))
    return a.head_dim <= 64 ? launch_sequences<64, 1, 64, true>(stream, f, extents)
                            : launch_sequences<128, 1, 64, true>(stream, f, extents);
  constexpr int64_t kForTwoBlocks = int64_t{132} * 1024;
  const bool tall = a.queries.tokens * a.heads >= int64_t{2} * 128 * extents.card.multiprocessors;
  if (a.head_dim <= 64)
    return tall ? launch_sequences<64, 2, 64, false>(stream, f, extents)
                : launch_sequences<64, 1, 64, false>(stream, f, extents);
  if (!tall) return launch_sequences<128, 1, 64, false>(stream, f, extents);
  if (extents.card.shared_bytes_per_block < kForTwoBlocks)
    return launch_sequences<128, 2, 32, false>(stream, f, extents);
  launch_sequences<128, 2, 64, false>(stream, f, extents);
}

template <class T>
void launch_forward(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  begin_forward(stream, f);
  if constexpr (sizeof(T) == 2) {
    if (extents.fits_tiles) return launch_forward_tiles(stream, f, extents);
  }
  launch_forward_plain<GpuAttentionSite<T>>(stream, f, extents);
}

template <class T>
void launch_backward(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  using Site = GpuAttentionSite<T>;
  begin_backward(stream, g);
  if constexpr (sizeof(T) == 2) {
    const bool has_memory = g.a.head_dim <= 128 || extents.card.shared_bytes_per_block >= kForWideGradients;
    if (extents.fits_tiles && has_memory) {
      const bool narrow = g.a.head_dim <= 64;
      if (g.a.softcap > 0) return launch_wide_or_capped<true>(stream, g, extents);
      if (g.a.head_dim > 128) return launch_wide_or_capped<false>(stream, g, extents);
      if (has_extras(g.a))
        return narrow ? launch_backward_tiles<64, true, Site, Site>(stream, g, extents)
                      : launch_backward_tiles<128, true, Site, Site>(stream, g, extents);
      return narrow ? launch_backward_tiles<64, false, Site, Site>(stream, g, extents)
                    : launch_backward_tiles<128, false, Site, Site>(stream, g, extents);
    }
  }
  launch_backward_plain<Site, Site>(stream, g, extents);
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
              attention_grad_table_of_tiles<static_cast<int>(kGpuAttentionTile), T, G>, g.a, g.bias_tiles,
              g.bias_sums, bias.accumulation, bias.table);
}

template <class T, class G>
BoundCall make_grad(const GpuBinding& b) {
  GpuAttentionGrad<T> g = backward_of<T>(b);
  BiasGradient<G> bias;
  const AttentionShape shape = attention_shape(b.graph(), b.op());
  if (shape.bias_trains) {
    bias = {.table = b.output<G>(operand::attention_grad::d_bias_table),
            .buckets = static_cast<unsigned>(shape.buckets),
            .accumulation = Accumulation{b.op().attr_int("accumulate"), g.a.step}};
    g.bias_sums = g.delta + b.input_tensor(operand::attention::q).shape[0] * shape.heads;
    g.bias_tiles = static_cast<int>(gpu::blocks_of(shape.length, kGpuAttentionTile));
  }
  return [g, bias, extents = Extents(b, operand::attention_grad{}), &stream = b.stream()] {
    launch_backward(stream, g, extents);
    launch_bias_grad(stream, g, extents, bias);
  };
}

}  // namespace

BoundCall bind_gpu_attention(const GpuBinding& b) {
  if (has_parents(b.op())) return bind_tree_attention(b);
  return with_gpu_type(b, b.input_tensor(operand::attention::q).dtype, [&](auto zero) -> BoundCall {
    return [f = forward_of<decltype(zero)>(b), extents = Extents(b, operand::attention{}),
            &stream = b.stream()] { launch_forward(stream, f, extents); };
  });
}

BoundCall bind_gpu_attention_grad(const GpuBinding& b) {
  if (has_parents(b.op())) return bind_tree_attention_grad(b);
  const DType gradient = b.has_output(operand::attention_grad::d_bias_table)
                             ? b.output_tensor(operand::attention_grad::d_bias_table).dtype
                             : DType::f32;
  return with_gpu_types(b, b.input_tensor(operand::attention::q).dtype, gradient,
                        [&](auto t, auto g) -> BoundCall { return make_grad<decltype(t), decltype(g)>(b); });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
