// attention and attention_grad of sequences that are segments of trees.
#include "ops/attention/gpu_attention_launch.h"
#include "ops/attention/gpu_attention_trees.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

template <class T>
void launch_forward(gpu::Stream& stream, const GpuAttentionForward<T>& f, const Extents& extents) {
  using Site = TreeQueries<T>;
  begin_forward(stream, f);
  if constexpr (sizeof(T) == 2) {
    // Segments are short: no tiles of 128 queries.
    if (extents.fits_tiles)
      return f.a.head_dim <= 64 ? launch_tiles<64, 1, 64, false, Site>(stream, f, extents)
                                : launch_tiles<128, 1, 64, false, Site>(stream, f, extents);
  }
  launch_forward_plain<Site>(stream, f, extents);
}

template <class T>
void launch_backward(gpu::Stream& stream, const GpuAttentionGrad<T>& g, const Extents& extents) {
  using Queries = TreeQueries<T>;
  using Keys = TreeKeys<T>;
  begin_backward(stream, g);
  if (g.a.trees.numbers != nullptr)
    gpu::launch(stream, {gpu::blocks_of(g.a.queries.tokens, kNumberThreads)}, {kNumberThreads},
                number_tokens<T>, g.a);
  if constexpr (sizeof(T) == 2) {
    if (extents.fits_tiles)
      return g.a.head_dim <= 64 ? launch_backward_tiles<64, false, Queries, Keys>(stream, g, extents)
                                : launch_backward_tiles<128, false, Queries, Keys>(stream, g, extents);
  }
  launch_backward_plain<Queries, Keys>(stream, g, extents);
}

}  // namespace

BoundCall bind_tree_attention(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(operand::attention::q).dtype, [&](auto zero) -> BoundCall {
    return [f = forward_of<decltype(zero)>(b), extents = Extents(b, operand::attention{}),
            &stream = b.stream()] { launch_forward(stream, f, extents); };
  });
}

BoundCall bind_tree_attention_grad(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(operand::attention::q).dtype, [&](auto zero) -> BoundCall {
    GpuAttentionGrad<decltype(zero)> g = backward_of<decltype(zero)>(b);
    if (g.a.window > 0)
      g.a.trees.numbers = reinterpret_cast<int32_t*>(g.delta + g.a.queries.tokens * g.a.heads);
    return [g, extents = Extents(b, operand::attention_grad{}), &stream = b.stream()] {
      launch_backward(stream, g, extents);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
