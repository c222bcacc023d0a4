#include <cstring>

#include "ops/cached_sequences.h"
#include "ops/cpu_dispatch.h"
#include "ops/delta/delta_rule_kernels.h"
#include "ops/delta/delta_rule_shape.h"

namespace plimsoll {
namespace {

DeltaProblem delta_problem_of(const CpuBinding& b) {
  return {.shape = delta_shape(b.graph(), b.op()), .eps = static_cast<float>(b.op().attr_float("eps"))};
}

// From a row and its state to the next ones, of rows that continue a sequence each.
template <class T>
void next_sequence(DeltaCached<T>& a) {
  const DeltaShape& s = a.problem.shape;
  a.q += s.key_heads * s.key_dim;
  a.k += s.key_heads * s.key_dim;
  a.v += s.heads * s.value_dim;
  a.g += s.heads;
  a.beta += s.heads;
  a.o += s.heads * s.value_dim;
  a.state += s.heads * s.key_dim * s.value_dim;
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
    return [=, step = b.input<double>(at::step), axis = b.op().axis, apart = continues_apart(b.op())] {
      const DeltaShape& shape = args.problem.shape;
      const int64_t live = live_tokens(step, axis), o_row = shape.heads * shape.value_dim;
      check_internal(live >= 1 && live <= shape.tokens, "delta_rule_cached: live tokens");
      DeltaCached<T> now = args;
      now.live = apart ? 1 : live;
      now.fresh = step_value(step, StepValue::kv_length) == 0.0;
      for (int64_t row = 0; row < live; row += now.live) {
        kernel(now);
        next_sequence(now);
      }
      std::memset(args.o + live * o_row, 0, static_cast<size_t>((shape.tokens - live) * o_row) * sizeof(T));
    };
  });
}

}  // namespace plimsoll
