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
  using at = operand::gla;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaForward<T> args{
        .problem = problem_of(b),
        .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
        .q = b.input<T>(at::q),
        .k = b.input<T>(at::k),
        .v = b.input<T>(at::v),
        .gate = b.input<T>(at::gate),
        .o = b.output<T>(at::o),
        .scratch = b.scratch(),
        .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gla_forward, GlaForward<T>);
    return [=, step = b.input<double>(at::step), axis = b.op().axis] {
      GlaForward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_gla_grad(const CpuBinding& b) {
  using at = operand::gla_grad;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaBackward<T> args{
        .problem = problem_of(b),
        .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
        .q = b.input<T>(at::q),
        .k = b.input<T>(at::k),
        .v = b.input<T>(at::v),
        .gate = b.input<T>(at::gate),
        .d_o = b.input<T>(at::d_o),
        .d_q = b.output<T>(at::d_q),
        .d_k = b.output<T>(at::d_k),
        .d_v = b.output<T>(at::d_v),
        .d_gate = b.output<T>(at::d_gate),
        .scratch = b.scratch(),
        .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gla_backward, GlaBackward<T>);
    return [=, step = b.input<double>(at::step), axis = b.op().axis] {
      GlaBackward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_gla_cached(const CpuBinding& b) {
  using at = operand::gla_cached;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaCached<T> args{.problem = problem_of(b),
                            .q = b.input<T>(at::q),
                            .k = b.input<T>(at::k),
                            .v = b.input<T>(at::v),
                            .gate = b.input<T>(at::gate),
                            .o = b.output<T>(at::o),
                            .state = b.output<float>(at::state),
                            .scratch = b.scratch(),
                            .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gla_cached, GlaCached<T>);
    return
        [=, step = b.input<double>(at::step), axis = b.op().axis, o_row = b.output_tensor(at::o).shape[1]] {
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
