// gla and gla_grad, chunk by chunk. What is computed: ops/scan/gla_kernels.h.
#include "ops/scan/gla_shape.h"
#include "ops/scan/gpu_gla_backward.h"
#include "ops/scan/gpu_gla_tree.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// Planned sizes that grids follow from.
struct Extents {
  unsigned slots, sequences, heads, kv_heads;
  int keys, values;

  explicit Extents(const GlaShape& s)
      : slots(static_cast<unsigned>(gla_most_chunks(s))),
        sequences(static_cast<unsigned>(s.sequences)),
        heads(static_cast<unsigned>(s.heads)),
        kv_heads(static_cast<unsigned>(s.kv_heads)),
        keys(static_cast<int>(gla_gpu_row(s.key_dim))),
        values(static_cast<int>(gla_gpu_row(s.value_dim))) {}
  [[nodiscard]] gpu::Dim3 of_keys() const { return {slots, kv_heads, gpu::blocks_of(keys, gpu::kWarpSize)}; }
  [[nodiscard]] gpu::Dim3 of_scores() const { return {slots, heads}; }
  [[nodiscard]] gpu::Dim3 of_states() const {
    return {sequences * kv_heads, gpu::blocks_of(keys, kGlaTile), gpu::blocks_of(values, kGlaTile)};
  }
  [[nodiscard]] gpu::Dim3 of_state_rows() const {
    return {slots, heads + kv_heads, gpu::blocks_of(keys, kGlaTile)};
  }
  [[nodiscard]] gpu::Dim3 of_values(unsigned heads_of_rows) const {
    return {slots, heads_of_rows, gpu::blocks_of(values, kGlaTile)};
  }
};

bool begins_a_pack(const void* values) { return reinterpret_cast<uintptr_t>(values) % 16 == 0; }

// `at`: operand::gla, or that of its gradient.
template <class T, class at>
Gla<T> operands_of(const GpuBinding& b) {
  require_tensor_cores(b, b.input_tensor(at::q).dtype);
  const GlaShape shape = gla_shape(b.graph(), b.op());
  const GlaGpuScratch parts = gla_gpu_scratch(shape, sizeof(T));
  std::byte* const scratch = b.scratch();
  const auto number = [&](const char* name) { return static_cast<float>(b.op().attr_float(name)); };
  return {.q = b.input<T>(at::q),
          .k = b.input<T>(at::k),
          .v = b.input<T>(at::v),
          .gate = b.input<T>(at::gate),
          .where = {b.input<int32_t>(at::seq_starts), shape.tokens},
          .parents = b.input<int32_t>(at::parents),
          .step = b.input<double>(at::step),
          .sequences = live_sequences_of(b.op().axis),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .key_dim = static_cast<int>(shape.key_dim),
          .value_dim = static_cast<int>(shape.value_dim),
          .keys = static_cast<int>(gla_gpu_row(shape.key_dim)),
          .values = static_cast<int>(gla_gpu_row(shape.value_dim)),
          .values_in_packs = shape.value_dim % kGlaPack<T> == 0 && begins_a_pack(b.input<T>(at::v)),
          .scale = number("scale"),
          .normalizer = number("normalizer"),
          .clamp_min = number("clamp_min"),
          .decays = reinterpret_cast<float*>(scratch + parts.decays),
          .chunk_decays = reinterpret_cast<float*>(scratch + parts.chunk_decays),
          .queries_from_start = reinterpret_cast<T*>(scratch + parts.queries),
          .keys_to_end = reinterpret_cast<T*>(scratch + parts.keys),
          .scores = reinterpret_cast<T*>(scratch + parts.scores),
          .states = reinterpret_cast<T*>(scratch + parts.states),
          .forks = reinterpret_cast<float*>(scratch + parts.forks)};
}

template <class T>
void clear_beyond(gpu::Stream& stream, T* rows, int64_t width, const Gla<T>& a) {
  gpu::launch(stream, {static_cast<unsigned>(a.where.tokens)}, {kPaddingThreads}, clear_padding<T>, rows,
              width, a.where, a.step, a.sequences);
}

template <class T, bool kBack>
void launch_walk(gpu::Stream& stream, const Gla<T>& a, const Extents& extents,
                 const GlaWalk<T, kBack>& walk) {
  const auto kernel = a.parents == nullptr ? gla_walk<T, kBack> : gla_walk_trees<T, kBack>;
  gpu::launch(stream, extents.of_states(), {kGlaThreads}, kernel, a, walk);
}

// The values that rows are computed from: decays, scores, and the states that chunks start from.
template <class T>
void launch_chunks(gpu::Stream& stream, const Gla<T>& a, const Extents& extents) {
  gpu::launch(stream, extents.of_keys(), {kGlaThreads}, gla_prepare<T>, a);
  gpu::launch(stream, extents.of_scores(), {kGlaThreads}, gla_scores<T>, a);
  launch_walk(stream, a, extents, GlaWalk<T, false>{a.v, a.states});
}

template <class T>
void launch_backward(gpu::Stream& stream, const GlaGrad<T>& g, const Extents& extents) {
  const Gla<T>& a = g.a;
  clear_beyond(stream, g.d_q, int64_t{a.heads} * a.key_dim, a);
  clear_beyond(stream, g.d_k, int64_t{a.kv_heads} * a.key_dim, a);
  clear_beyond(stream, g.d_v, int64_t{a.kv_heads} * a.value_dim, a);
  clear_beyond(stream, g.d_gate, int64_t{a.kv_heads} * a.key_dim, a);
  launch_chunks(stream, a, extents);
  launch_walk(stream, a, extents, GlaWalk<T, true>{g.d_o, g.d_states});
  gpu::launch(stream, extents.of_scores(), {kGlaThreads}, gla_grad_scores<T>, g);
  gpu::launch(stream, extents.of_values(extents.kv_heads), {kGlaThreads}, gla_grad_values<T>, g);
  gpu::launch(stream, extents.of_state_rows(), {kGlaThreads}, gla_grad_states<T>, g);
  gpu::launch(stream, extents.of_keys(), {kGlaThreads}, gla_grad_keys<T>, g);
}

}  // namespace

BoundCall bind_gpu_gla(const GpuBinding& b) {
  using at = operand::gla;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    Gla<T> a = operands_of<T, at>(b);
    T* const o = b.output<T>(at::o);
    a.values_in_packs = a.values_in_packs && begins_a_pack(o);
    return [a, o, extents = Extents(gla_shape(b.graph(), b.op())), &stream = b.stream()] {
      clear_beyond(stream, o, int64_t{a.heads} * a.value_dim, a);
      launch_chunks(stream, a, extents);
      gpu::launch(stream, extents.of_values(extents.heads), {kGlaThreads}, gla_outputs<T>, a, o);
    };
  });
}

BoundCall bind_gpu_gla_grad(const GpuBinding& b) {
  using at = operand::gla_grad;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaShape shape = gla_shape(b.graph(), b.op());
    const GlaGpuScratch parts = gla_gpu_scratch(shape, sizeof(T));
    GlaGrad<T> g{.a = operands_of<T, at>(b),
                 .d_o = b.input<T>(at::d_o),
                 .d_q = b.output<T>(at::d_q),
                 .d_k = b.output<T>(at::d_k),
                 .d_v = b.output<T>(at::d_v),
                 .d_gate = b.output<T>(at::d_gate),
                 .d_scores = reinterpret_cast<float*>(b.scratch() + parts.d_scores),
                 .d_q_of_states = reinterpret_cast<float*>(b.scratch() + parts.d_q_of_states),
                 .d_k_of_states = reinterpret_cast<float*>(b.scratch() + parts.d_k_of_states),
                 .d_states = reinterpret_cast<T*>(b.scratch() + parts.d_states)};
    g.a.values_in_packs = g.a.values_in_packs && begins_a_pack(g.d_o) && begins_a_pack(g.d_v);
    return [g, extents = Extents(shape), &stream = b.stream()] { launch_backward(stream, g, extents); };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
