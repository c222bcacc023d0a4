// delta_rule and delta_rule_grad, chunk by chunk. What is computed: ops/delta/delta_rule_kernels.h.
#include "ops/delta/delta_rule_shape.h"
#include "ops/delta/gpu_delta_rule_backward.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// Planned sizes that grids follow from.
struct DeltaExtents {
  unsigned chunks, sequences, heads, key_heads;  // chunks of a stretch
  unsigned rows, stretch_rows;                   // blocks of rows of q and k, of all and of a stretch
  int stretches, stretch;
  int64_t keys, values;

  explicit DeltaExtents(const DeltaShape& s)
      : chunks(static_cast<unsigned>(delta_gpu_stretch(s))),
        sequences(static_cast<unsigned>(s.sequences)),
        heads(static_cast<unsigned>(s.heads)),
        key_heads(static_cast<unsigned>(s.key_heads)),
        rows(gpu::blocks_of(s.tokens * s.key_heads, kDeltaThreads / gpu::kWarpSize)),
        stretch_rows(gpu::blocks_of(delta_gpu_rows(s) * s.key_heads, kDeltaThreads / gpu::kWarpSize)),
        stretches(static_cast<int>(delta_gpu_stretches(s))),
        stretch(static_cast<int>(delta_gpu_stretch(s))),
        keys(s.key_dim),
        values(s.value_dim) {}
  [[nodiscard]] gpu::Dim3 of_chunks() const { return {chunks, heads}; }
  [[nodiscard]] gpu::Dim3 of_walks() const {
    return {sequences * heads, gpu::blocks_of(values, kDeltaWalkColumns)};
  }
  [[nodiscard]] gpu::Dim3 of_outputs() const {
    return {chunks, heads, gpu::blocks_of(values, kDeltaColumns)};
  }
  [[nodiscard]] gpu::Dim3 of_rows() const { return {chunks, key_heads, key_tiles()}; }
  [[nodiscard]] unsigned key_tiles() const { return gpu::blocks_of(keys, kDeltaTileKeys); }
};

// `at`: operand::delta_rule, or that of its gradient, which keeps the states before all stretches.
template <class T, class at>
Delta<T> delta_operands_of(const GpuBinding& b, bool all) {
  const DeltaShape shape = delta_shape(b.graph(), b.op());
  const DeltaGpuForward parts = delta_gpu_forward(shape);
  const bool whole = delta_gpu_stretches(shape) == 1;
  const auto part = [&](int64_t offset) { return reinterpret_cast<float*>(b.scratch() + offset); };
  return {.q = b.input<T>(at::q),
          .k = b.input<T>(at::k),
          .v = b.input<T>(at::v),
          .g = b.input<float>(at::g),
          .beta = b.input<float>(at::beta),
          .where = {b.input<int32_t>(at::seq_starts), shape.tokens},
          .parents = b.input<int32_t>(at::parents),
          .step = b.input<double>(at::step),
          .sequences = live_sequences_of(b.op().axis),
          .heads = static_cast<int>(shape.heads),
          .key_heads = static_cast<int>(shape.key_heads),
          .key_dim = static_cast<int>(shape.key_dim),
          .value_dim = static_cast<int>(shape.value_dim),
          .slots = static_cast<int>(delta_most_chunks(shape)),
          .eps = static_cast<float>(b.op().attr_float("eps")),
          .made = {.q_factors = part(parts.q_factors),
                   .k_factors = part(parts.k_factors),
                   .high = part(parts.high),
                   .low = part(parts.low),
                   .from_start = part(parts.from_start),
                   .to_end = part(parts.to_end),
                   .inverses = part(parts.inverses),
                   .scores = part(parts.scores),
                   .u = part(parts.u),
                   .states = {part(parts.states), static_cast<int>(delta_gpu_between(shape, all))}},
          .stretch = static_cast<int>(whole ? delta_most_chunks(shape) + 1 : delta_gpu_stretch(shape))};
}

template <class V, class T>
void clear_beyond(gpu::Stream& stream, V* rows, int64_t width, const Delta<T>& a) {
  gpu::launch(stream, {static_cast<unsigned>(a.where.tokens)}, {kPaddingThreads}, clear_padding<V>, rows,
              width, a.where, a.step, a.sequences);
}

template <class T>
Delta<T> at_stretch(Delta<T> a, const DeltaExtents& extents, int index) {
  a.first_chunk = index * extents.stretch;
  return a;
}

template <class T>
void launch_prepare(gpu::Stream& stream, const Delta<T>& a, const DeltaExtents& extents) {
  gpu::launch(stream, {extents.rows}, {kDeltaThreads}, delta_prepare<T>, a);
}

// The values that a stretch's rows are computed from: chunks, and the states that these start from.
template <class T>
void launch_chunks(gpu::Stream& stream, const Delta<T>& a, const DeltaExtents& extents) {
  gpu::launch(stream, extents.of_chunks(), {kDeltaThreads}, delta_chunks<T>, a);
  gpu::launch(stream, extents.of_walks(), {kDeltaThreads}, delta_walk<T>, a);
}

template <class T>
void launch_backward_stretch(gpu::Stream& stream, const DeltaGrad<T>& g, const DeltaExtents& extents) {
  launch_chunks(stream, g.a, extents);
  gpu::launch(stream, extents.of_walks(), {kDeltaThreads}, delta_grad_walk<T>, g);
  gpu::launch(stream, extents.of_chunks(), {kDeltaThreads}, delta_grad_scores<T>, g);
  gpu::launch(stream, extents.of_rows(), {kDeltaThreads}, delta_grad_rows<T>, g);
  gpu::launch(stream, {extents.stretch_rows}, {kDeltaThreads}, delta_finish_rows<T>, g);
  gpu::launch(stream, extents.of_chunks(), {kDeltaGateThreads}, delta_finish_gates<T>, g,
              static_cast<int>(extents.key_tiles()));
}

// Forwards through all stretches but the last for the states before them, then back through all.
template <class T>
void launch_backward(gpu::Stream& stream, DeltaGrad<T> g, const DeltaExtents& extents) {
  const Delta<T> a = g.a;
  clear_beyond(stream, g.d_q, int64_t{a.key_heads} * a.key_dim, a);
  clear_beyond(stream, g.d_k, int64_t{a.key_heads} * a.key_dim, a);
  clear_beyond(stream, g.d_v, int64_t{a.heads} * a.value_dim, a);
  clear_beyond(stream, g.d_g, a.heads, a);
  clear_beyond(stream, g.d_beta_out, a.heads, a);
  launch_prepare(stream, a, extents);
  for (int i = 0; i + 1 < extents.stretches; ++i) launch_chunks(stream, at_stretch(a, extents, i), extents);
  for (int i = extents.stretches - 1; i >= 0; --i) {
    g.a = at_stretch(a, extents, i);
    launch_backward_stretch(stream, g, extents);
  }
}

}  // namespace

BoundCall bind_gpu_delta_rule(const GpuBinding& b) {
  using at = operand::delta_rule;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [a = delta_operands_of<T, at>(b, false), o = b.output<T>(at::o),
            extents = DeltaExtents(delta_shape(b.graph(), b.op())), &stream = b.stream()] {
      clear_beyond(stream, o, int64_t{a.heads} * a.value_dim, a);
      launch_prepare(stream, a, extents);
      for (int i = 0; i < extents.stretches; ++i) {
        const Delta<T> stretch = at_stretch(a, extents, i);
        launch_chunks(stream, stretch, extents);
        gpu::launch(stream, extents.of_outputs(), {kDeltaThreads}, delta_outputs<T>, stretch, o);
      }
    };
  });
}

BoundCall bind_gpu_delta_rule_grad(const GpuBinding& b) {
  using at = operand::delta_rule_grad;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DeltaShape shape = delta_shape(b.graph(), b.op());
    const DeltaGpuBackward parts = delta_gpu_backward(shape);
    const auto part = [&](int64_t offset) { return reinterpret_cast<float*>(b.scratch() + offset); };
    const DeltaGrad<T> g{
        .a = delta_operands_of<T, at>(b, true),
        .d_o = b.input<T>(at::d_o),
        .d_q = b.output<T>(at::d_q),
        .d_k = b.output<T>(at::d_k),
        .d_v = b.output<T>(at::d_v),
        .d_g = b.output<float>(at::d_g),
        .d_beta_out = b.output<float>(at::d_beta),
        .d_r = part(parts.d_r),
        .d_states = {part(parts.d_states), static_cast<int>(delta_gpu_between(shape, false))},
        .d_queries = part(delta_gpu_forward(shape).scores),
        .d_keys = part(delta_gpu_forward(shape).inverses),
        .d_sums = part(parts.d_sums),
        .d_beta = part(parts.d_beta),
        .row_parts = part(parts.row_parts),
        .state_parts = part(parts.state_parts),
        .d_q_rows = part(parts.d_q_rows),
        .d_k_rows = part(parts.d_k_rows)};
    return [g, extents = DeltaExtents(shape), &stream = b.stream()] { launch_backward(stream, g, extents); };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
