#include <cstring>

#include "ops/cpu_dispatch.h"
#include "ops/scan/gla_kernels.h"
#include "ops/scan/gla_shape.h"

namespace plimsoll {
namespace {

GlaProblem problem_of(const CpuBinding& b) {
  const auto number = [&](const char* name) { return static_cast<float>(b.op().attr_float(name)); };
  return {.shape = gla_shape(b.graph(), b.op()),
          .scale = number("scale"),
          .normalizer = number("normalizer"),
          .clamp_min = number("clamp_min")};
}

}  // namespace

BoundCall bind_gla(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaForward<T> args{.problem = problem_of(b),
                             .sequences = {.starts = b.input<int32_t>(4), .parents = b.input<int32_t>(6)},
                             .q = b.input<T>(0),
                             .k = b.input<T>(1),
                             .v = b.input<T>(2),
                             .gate = b.input<T>(3),
                             .o = b.output<T>(0),
                             .scratch = b.scratch(),
                             .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gla_forward, GlaForward<T>);
    return [=, step = b.input<double>(5), axis = b.op().axis] {
      GlaForward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_gla_grad(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaBackward<T> args{.problem = problem_of(b),
                              .sequences = {.starts = b.input<int32_t>(5), .parents = b.input<int32_t>(7)},
                              .q = b.input<T>(0),
                              .k = b.input<T>(1),
                              .v = b.input<T>(2),
                              .gate = b.input<T>(3),
                              .d_o = b.input<T>(4),
                              .d_q = b.output<T>(0),
                              .d_k = b.output<T>(1),
                              .d_v = b.output<T>(2),
                              .d_gate = b.output<T>(3),
                              .scratch = b.scratch(),
                              .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gla_backward, GlaBackward<T>);
    return [=, step = b.input<double>(6), axis = b.op().axis] {
      GlaBackward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_gla_cached(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaCached<T> args{.problem = problem_of(b),
                            .q = b.input<T>(0),
                            .k = b.input<T>(1),
                            .v = b.input<T>(2),
                            .gate = b.input<T>(3),
                            .o = b.output<T>(0),
                            .state = b.output<float>(1),
                            .scratch = b.scratch(),
                            .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gla_cached, GlaCached<T>);
    return [=, step = b.input<double>(4), axis = b.op().axis, o_row = b.output_tensor(0).shape[1]] {
      GlaCached<T> now = args;
      now.live = live_tokens(step, axis);
      now.fresh = step_value(step, StepValue::kv_length) == 0.0;
      check_internal(now.live >= 1 && now.live <= args.problem.shape.tokens, "gla_cached: live tokens");
      kernel(now);
      std::memset(now.o + now.live * o_row, 0,
                  static_cast<size_t>((args.problem.shape.tokens - now.live) * o_row) * sizeof(T));
    };
  });
}

}  // namespace plimsoll
