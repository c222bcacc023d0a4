#include <cmath>
#include <cstring>

#include "ops/attention_kernels.h"
#include "ops/attention_shape.h"
#include "ops/cpu_dispatch.h"

namespace plimsoll {
namespace {

AttentionProblem problem_of(const CpuBinding& b) {
  const int64_t head = b.op().attr_int("head_dim");
  return {.shape = attention_shape(b.graph(), b.op()),
          .tokens = b.input_tensor(0).shape[0],
          .window = b.op().attr_int("window"),
          .scale = 1.0F / std::sqrt(static_cast<float>(head))};
}

// Extends a cache by the live rows.
void append(void* cache, const void* rows, int64_t row_bytes, int64_t at, int64_t count) {
  std::memcpy(static_cast<std::byte*>(cache) + at * row_bytes, rows, static_cast<size_t>(count * row_bytes));
}

}  // namespace

BoundCall bind_attention(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const AttentionForward<T> args{.problem = problem_of(b),
                                   .sequences = {.starts = b.input<int32_t>(3)},
                                   .q = b.input<T>(0),
                                   .k = b.input<T>(1),
                                   .v = b.input<T>(2),
                                   .o = b.output<T>(0),
                                   .lse = b.output<float>(1),
                                   .scratch = b.scratch(),
                                   .threads = b.settings().threads};
    const auto kernel = pick<AttentionForward<T>>(b.settings().isa, avx2::attention_forward,
                                                  avx512::attention_forward, avx512_bf16::attention_forward);
    return [=, step = b.input<double>(4), axis = b.op().axis] {
      AttentionForward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_attention_grad(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const AttentionBackward<T> args{.problem = problem_of(b),
                                    .sequences = {.starts = b.input<int32_t>(6)},
                                    .q = b.input<T>(0),
                                    .k = b.input<T>(1),
                                    .v = b.input<T>(2),
                                    .o = b.input<T>(3),
                                    .lse = b.input<float>(4),
                                    .d_o = b.input<T>(5),
                                    .d_q = b.output<T>(0),
                                    .d_k = b.output<T>(1),
                                    .d_v = b.output<T>(2),
                                    .scratch = b.scratch(),
                                    .threads = b.settings().threads};
    const auto kernel =
        pick<AttentionBackward<T>>(b.settings().isa, avx2::attention_backward, avx512::attention_backward,
                                   avx512_bf16::attention_backward);
    return [=, step = b.input<double>(7), axis = b.op().axis] {
      AttentionBackward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_attention_cached(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const AttentionCached<T> args{.problem = problem_of(b),
                                  .q = b.input<T>(0),
                                  .k_cache = b.output<T>(1),
                                  .v_cache = b.output<T>(2),
                                  .o = b.output<T>(0),
                                  .scratch = b.scratch(),
                                  .threads = b.settings().threads};
    const auto kernel = pick<AttentionCached<T>>(b.settings().isa, avx2::attention_cached,
                                                 avx512::attention_cached, avx512_bf16::attention_cached);
    const Tensor& k = b.input_tensor(1);
    return [=, step = b.input<double>(3), k_new = b.input(1), v_new = b.input(2), k_cache = b.output(1),
            v_cache = b.output(2), row_bytes = k.shape[1] * size_of(k.dtype),
            capacity = b.op().attr_int("capacity"), axis = b.op().axis, o_row = b.output_tensor(0).shape[1]] {
      const auto cached = static_cast<int64_t>(step_value(step, StepValue::kv_length));
      const int64_t live = live_tokens(step, axis);
      check_internal(cached + live <= capacity, "attention_cached: more tokens than the cache holds");
      append(k_cache, k_new, row_bytes, cached, live);
      append(v_cache, v_new, row_bytes, cached, live);
      AttentionCached<T> now = args;
      now.problem.tokens = live;
      now.kv_length = cached + live;
      kernel(now);
      std::memset(now.o + live * o_row, 0,
                  static_cast<size_t>((args.problem.tokens - live) * o_row) * sizeof(T));
    };
  });
}

}  // namespace plimsoll
