#include <cstring>

#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_shape.h"
#include "ops/cached_sequences.h"
#include "ops/cpu_dispatch.h"
#include "tensor/bf16.h"

namespace plimsoll {
namespace {

// `at`: the operands of an attention; that over a cache drops nothing.
template <class at>
AttentionProblem problem_of(const CpuBinding& b) {
  const Op& op = b.op();
  AttentionProblem problem{.shape = attention_shape(b.graph(), op),
                           .tokens = b.input_tensor(at::q).shape[0],
                           .window = op.attr_int("window"),
                           .scale = attention_scale(op),
                           .softcap = attention_softcap(op),
                           .key_tokens = b.input_tensor(at::k).shape[0]};
  if constexpr (requires { at::samples; }) {
    if (op.attrs.contains("dropout"))
      problem.dropout = {.probability = op.attr_float("dropout"),
                         .samples = b.input<int32_t>(at::samples),
                         .positions = b.input<int32_t>(at::positions),
                         .scope_hash = attention_dropout_key(op)};
  }
  return problem;
}

// The step's values that a call reads: the number of sequences, and the key of dropout.
class AttentionStep {
 public:
  AttentionStep(const CpuBinding& b, size_t step_input)
      : step_(b.input<double>(step_input)),
        axis_(b.op().axis),
        key_axis_(b.op().attrs.contains("keys_of") ? static_cast<AxisId>(b.op().attr_int("keys_of"))
                                                   : axis_) {}

  template <class Arguments>
  void set(Arguments& now) const {
    now.sequences.count = live_sequences(step_, axis_);
    now.keys.count = live_sequences(step_, key_axis_);
    check_internal(now.keys.count == now.sequences.count,
                   "attention: as many sequences of keys as of queries");
    now.problem.dropout.seed = step_seed(step_);
    now.problem.dropout.step = static_cast<uint32_t>(step_value(step_, StepValue::optimizer_step));
  }

 private:
  const double* step_;
  AxisId axis_, key_axis_;
};

// Extends a cache by the live rows.
void append(void* cache, const void* rows, int64_t row_bytes, int64_t at, int64_t count) {
  std::memcpy(static_cast<std::byte*>(cache) + at * row_bytes, rows, static_cast<size_t>(count * row_bytes));
}

// Adds sums of f32 to a gradient, or overwrites it.
template <class G>
void add_sums(const float* sums, G* gradient, int64_t count, bool overwrite) {
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (sizeof(G) == 2)
      gradient[i] = bf16_from_f32(sums[i] + (overwrite ? 0.0F : f32_from_bf16(gradient[i])));
    else
      gradient[i] = sums[i] + (overwrite ? 0.0F : gradient[i]);
  }
}

template <class T, class G>
BoundCall make_grad(const CpuBinding& b) {
  using at = operand::attention_grad;
  const AttentionProblem problem = problem_of<at>(b);
  const AttentionShape& shape = problem.shape;
  AttentionBackward<T> args{
      .problem = problem,
      .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
      .q = b.input<T>(at::q),
      .k = b.input<T>(at::k),
      .v = b.input<T>(at::v),
      .o = b.input<T>(at::o),
      .lse = b.input<float>(at::lse),
      .d_o = b.input<T>(at::d_o),
      .d_q = b.output<T>(at::d_q),
      .d_k = b.output<T>(at::d_k),
      .d_v = b.output<T>(at::d_v),
      .scratch = b.scratch(),
      .threads = b.settings().threads,
      .keys = {.starts = b.input<int32_t>(at::key_starts)},
      .bias_table = b.input<T>(at::bias_table)};
  if (shape.bias_trains)
    args.d_bias =
        reinterpret_cast<float*>(b.scratch() + attention_backward_scratch_bytes(shape, args.threads));
  const auto kernel = PLIMSOLL_KERNEL(b, attention_backward, AttentionBackward<T>);
  return [=, from = AttentionStep(b, at::step), step = b.input<double>(at::step),
          gradient = b.output<G>(at::d_bias_table),
          accumulate = shape.bias_trains ? b.op().attr_int("accumulate") : 0,
          count = shape.buckets * shape.heads] {
    AttentionBackward<T> now = args;
    from.set(now);
    kernel(now);
    if (now.d_bias != nullptr) add_sums(now.d_bias, gradient, count, overwrites(accumulate, step));
  };
}

template <class T>
Kernel<AttentionCached<T>> cached_kernel(const CpuBinding& b) {
  return PLIMSOLL_KERNEL(b, attention_cached, AttentionCached<T>);
}

// The live queries of `now`, which see `kv_length` keys; zero to the other rows.
template <class T>
void run_cached(Kernel<AttentionCached<T>> kernel, AttentionCached<T> now, int64_t live, int64_t kv_length) {
  const int64_t o_row = now.problem.shape.heads * now.problem.shape.head_dim;
  const int64_t planned = now.problem.tokens;
  now.problem.tokens = live;
  now.kv_length = kv_length;
  kernel(now);
  std::memset(now.o + live * o_row, 0, static_cast<size_t>((planned - live) * o_row) * sizeof(T));
}

// Keys and values that lie ready, on an axis of their own.
template <class T>
BoundCall bind_over_ready_keys(const CpuBinding& b, AttentionCached<T> args) {
  using at = operand::attention_cached;
  args.k_cache = b.input<T>(at::k);
  args.v_cache = b.input<T>(at::v);
  return [=, kernel = cached_kernel<T>(b), step = b.input<double>(at::step), axis = b.op().axis,
          key_axis = static_cast<AxisId>(b.op().attr_int("keys_of"))] {
    run_cached(kernel, args, live_tokens(step, axis), live_tokens(step, key_axis));
  };
}

// Rows that continue a sequence each.
template <class T>
BoundCall bind_apart(const CpuBinding& b, AttentionCached<T> args) {
  using at = operand::attention_cached;
  args.problem.tokens = 1;
  return [=, kernel = cached_kernel<T>(b), step = b.input<double>(at::step), k_new = b.input<T>(at::k),
          v_new = b.input<T>(at::v), k_cache = b.output<T>(at::k_cache), v_cache = b.output<T>(at::v_cache),
          q_row = b.input_tensor(at::q).shape[1], k_row = b.input_tensor(at::k).shape[1],
          rows = b.input_tensor(at::q).shape[0], capacity = b.op().attr_int("capacity"), axis = b.op().axis] {
    const auto cached = static_cast<int64_t>(step_value(step, StepValue::kv_length));
    const int64_t live = live_tokens(step, axis);
    check_internal(cached < capacity && live <= rows, "attention_cached: more tokens than the cache holds");
    for (int64_t r = 0; r < live; ++r) {
      AttentionCached<T> now = args;
      now.q += r * q_row;
      now.o += r * q_row;
      now.k_cache = k_cache + r * capacity * k_row;
      now.v_cache = v_cache + r * capacity * k_row;
      append(k_cache + r * capacity * k_row, k_new + r * k_row, k_row * sizeof(T), cached, 1);
      append(v_cache + r * capacity * k_row, v_new + r * k_row, k_row * sizeof(T), cached, 1);
      run_cached(kernel, now, 1, cached + 1);
    }
    std::memset(args.o + live * q_row, 0, static_cast<size_t>((rows - live) * q_row) * sizeof(T));
  };
}

}  // namespace

BoundCall bind_attention(const CpuBinding& b) {
  using at = operand::attention;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const AttentionForward<T> args{
        .problem = problem_of<at>(b),
        .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
        .q = b.input<T>(at::q),
        .k = b.input<T>(at::k),
        .v = b.input<T>(at::v),
        .o = b.output<T>(at::o),
        .lse = b.output<float>(at::lse),
        .scratch = b.scratch(),
        .threads = b.settings().threads,
        .keys = {.starts = b.input<int32_t>(at::key_starts)},
        .bias_table = b.input<T>(at::bias_table)};
    const auto kernel = PLIMSOLL_KERNEL(b, attention_forward, AttentionForward<T>);
    return [=, from = AttentionStep(b, at::step)] {
      AttentionForward<T> now = args;
      from.set(now);
      kernel(now);
    };
  });
}

BoundCall bind_attention_grad(const CpuBinding& b) {
  using at = operand::attention_grad;
  const DType gradient =
      b.has_output(at::d_bias_table) ? b.output_tensor(at::d_bias_table).dtype : DType::f32;
  return with_gradient_type(b, b.input_tensor(at::q).dtype, gradient, [&](auto t, auto g) -> BoundCall {
    return make_grad<decltype(t), decltype(g)>(b);
  });
}

BoundCall bind_attention_cached(const CpuBinding& b) {
  using at = operand::attention_cached;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    AttentionCached<T> args{.problem = problem_of<at>(b),
                            .q = b.input<T>(at::q),
                            .o = b.output<T>(at::o),
                            .scratch = b.scratch(),
                            .threads = b.settings().threads,
                            .bias_table = b.input<T>(at::bias_table)};
    if (b.op().attrs.contains("keys_of")) return bind_over_ready_keys(b, args);
    args.k_cache = b.output<T>(at::k_cache);
    args.v_cache = b.output<T>(at::v_cache);
    if (continues_apart(b.op())) return bind_apart(b, args);
    const Tensor& k = b.input_tensor(at::k);
    return [=, kernel = cached_kernel<T>(b), step = b.input<double>(at::step), k_new = b.input(at::k),
            v_new = b.input(at::v), k_cache = b.output(at::k_cache), v_cache = b.output(at::v_cache),
            row_bytes = k.shape[1] * size_of(k.dtype), capacity = b.op().attr_int("capacity"),
            axis = b.op().axis] {
      const auto cached = static_cast<int64_t>(step_value(step, StepValue::kv_length));
      const int64_t live = live_tokens(step, axis);
      check_internal(cached + live <= capacity, "attention_cached: more tokens than the cache holds");
      append(k_cache, k_new, row_bytes, cached, live);
      append(v_cache, v_new, row_bytes, cached, live);
      run_cached(kernel, args, live, cached + live);
    };
  });
}

}  // namespace plimsoll
