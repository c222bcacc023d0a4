#include <cstring>

#include "ops/cpu_dispatch.h"
#include "ops/delta/delta_rule_kernels.h"
#include "ops/delta/delta_rule_shape.h"

namespace plimsoll {
namespace {

DeltaProblem delta_problem_of(const CpuBinding& b) {
  return {.shape = delta_shape(b.graph(), b.op()), .eps = static_cast<float>(b.op().attr_float("eps"))};
}

}  // namespace

BoundCall bind_delta_rule(const CpuBinding& b) {
  using at = operand::delta_rule;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DeltaForward<T> args{
        .problem = delta_problem_of(b),
        .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
        .q = b.input<T>(at::q),
        .k = b.input<T>(at::k),
        .v = b.input<T>(at::v),
        .g = b.input<float>(at::g),
        .beta = b.input<float>(at::beta),
        .o = b.output<T>(at::o),
        .scratch = b.scratch(),
        .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, delta_forward, DeltaForward<T>);
    return [=, step = b.input<double>(at::step), axis = b.op().axis] {
      DeltaForward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_delta_rule_grad(const CpuBinding& b) {
  using at = operand::delta_rule_grad;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DeltaBackward<T> args{
        .problem = delta_problem_of(b),
        .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
        .q = b.input<T>(at::q),
        .k = b.input<T>(at::k),
        .v = b.input<T>(at::v),
        .g = b.input<float>(at::g),
        .beta = b.input<float>(at::beta),
        .d_o = b.input<T>(at::d_o),
        .d_q = b.output<T>(at::d_q),
        .d_k = b.output<T>(at::d_k),
        .d_v = b.output<T>(at::d_v),
        .d_g = b.output<float>(at::d_g),
        .d_beta = b.output<float>(at::d_beta),
        .scratch = b.scratch(),
        .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, delta_backward, DeltaBackward<T>);
    return [=, step = b.input<double>(at::step), axis = b.op().axis] {
      DeltaBackward<T> now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_delta_rule_cached(const CpuBinding& b) {
  using at = operand::delta_rule_cached;
  return with_element_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DeltaCached<T> args{.problem = delta_problem_of(b),
                              .q = b.input<T>(at::q),
                              .k = b.input<T>(at::k),
                              .v = b.input<T>(at::v),
                              .g = b.input<float>(at::g),
                              .beta = b.input<float>(at::beta),
                              .o = b.output<T>(at::o),
                              .state = b.output<float>(at::state),
                              .scratch = b.scratch(),
                              .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, delta_cached, DeltaCached<T>);
    return
        [=, step = b.input<double>(at::step), axis = b.op().axis, o_row = b.output_tensor(at::o).shape[1]] {
          DeltaCached<T> now = args;
          now.live = live_tokens(step, axis);
          now.fresh = step_value(step, StepValue::kv_length) == 0.0;
          check_internal(now.live >= 1 && now.live <= args.problem.shape.tokens,
                         "delta_rule_cached: live tokens");
          kernel(now);
          std::memset(now.o + now.live * o_row, 0,
                      static_cast<size_t>((args.problem.shape.tokens - now.live) * o_row) * sizeof(T));
        };
  });
}

}  // namespace plimsoll
