#include <cstring>

#include "ops/cached_sequences.h"
#include "ops/cpu_dispatch.h"
#include "ops/scan/short_conv_kernels.h"

namespace plimsoll {
namespace {

// make(T{}, W{}) for activations T and a weight W.
template <class Make>
BoundCall with_weight_type(const CpuBinding& b, Make make) {
  using at = operand::short_conv;
  return with_gradient_type(b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, make);
}
int taps_of(const CpuBinding& b) {
  return static_cast<int>(b.input_tensor(operand::short_conv::weight).shape.last());
}

template <class T, class W, class G>
BoundCall make_grad(const CpuBinding& b) {
  using at = operand::short_conv_grad;
  using Args = ShortConvGrad<T, W, G>;
  const Args args{
      .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
      .x = b.input<T>(at::x),
      .weight = b.input<W>(at::weight),
      .d_y = b.input<T>(at::d_y),
      .d_x = b.output<T>(at::d_x),
      .d_weight = b.output<G>(at::d_weight),
      .tokens = b.input_tensor(at::x).shape[0],
      .width = b.input_tensor(at::x).shape[1],
      .taps = taps_of(b),
      .threads = b.settings().threads};
  const auto kernel = PLIMSOLL_KERNEL(b, short_conv_grad, Args);
  return
      [=, step = b.input<double>(at::step), accumulate = b.op().attr_int("accumulate"), axis = b.op().axis] {
        Args now = args;
        now.sequences.count = live_sequences(step, axis);
        now.accumulate = !overwrites(accumulate, step);
        kernel(now);
      };
}

}  // namespace

BoundCall bind_short_conv(const CpuBinding& b) {
  using at = operand::short_conv;
  return with_weight_type(b, [&](auto t, auto w) -> BoundCall {
    using Args = ShortConv<decltype(t), decltype(w)>;
    const Args args{
        .sequences = {.starts = b.input<int32_t>(at::seq_starts), .parents = b.input<int32_t>(at::parents)},
        .x = b.input<decltype(t)>(at::x),
        .weight = b.input<decltype(w)>(at::weight),
        .y = b.output<decltype(t)>(at::y),
        .tokens = b.input_tensor(at::x).shape[0],
        .width = b.input_tensor(at::x).shape[1],
        .taps = taps_of(b),
        .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, short_conv, Args);
    return [=, step = b.input<double>(at::step), axis = b.op().axis] {
      Args now = args;
      now.sequences.count = live_sequences(step, axis);
      kernel(now);
    };
  });
}

BoundCall bind_short_conv_grad(const CpuBinding& b) {
  using at = operand::short_conv_grad;
  return with_weight_type(b, [&](auto t, auto w) -> BoundCall {
    using T = decltype(t);
    using W = decltype(w);
    if constexpr (sizeof(W) == 2) {
      if (b.op().has_output(at::d_weight) && size_of(b.output_tensor(at::d_weight).dtype) == 2)
        return make_grad<T, W, uint16_t>(b);
    }
    check_internal(!b.op().has_output(at::d_weight) || b.output_tensor(at::d_weight).dtype == DType::f32,
                   "short_conv_grad: no CPU kernel for the gradient's type");
    return make_grad<T, W, float>(b);
  });
}

BoundCall bind_short_conv_cached(const CpuBinding& b) {
  using at = operand::short_conv_cached;
  return with_weight_type(b, [&](auto t, auto w) -> BoundCall {
    using T = decltype(t);
    using Args = ShortConvCached<T, decltype(w)>;
    const Args args{.x = b.input<T>(at::x),
                    .weight = b.input<decltype(w)>(at::weight),
                    .y = b.output<T>(at::y),
                    .rows = b.output<T>(at::rows),
                    .width = b.input_tensor(at::x).shape[1],
                    .taps = taps_of(b),
                    .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, short_conv_cached, Args);
    return [=, step = b.input<double>(at::step), axis = b.op().axis, tokens = b.input_tensor(at::x).shape[0],
            apart = continues_apart(b.op())] {
      const int64_t live = live_tokens(step, axis);
      check_internal(live >= 1 && live <= tokens, "short_conv_cached: live tokens");
      Args now = args;
      now.live = apart ? 1 : live;
      now.fresh = step_value(step, StepValue::kv_length) == 0.0;
      for (int64_t row = 0; row < live; row += now.live) {
        kernel(now);
        now.x += now.width;
        now.y += now.width;
        now.rows += (now.taps - 1) * now.width;
      }
      std::memset(args.y + live * args.width, 0,
                  static_cast<size_t>((tokens - live) * args.width) * sizeof(T));
    };
  });
}

}  // namespace plimsoll
