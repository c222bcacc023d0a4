#include "ops/cpu_dispatch.h"
#include "ops/pointwise/activations_kernels.h"
#include "ops/pointwise/halves.h"

namespace plimsoll {
namespace {

int64_t values_of(const CpuBinding& b) { return b.graph().tensor(b.op().outputs.front()).shape.elements(); }
bool by_tanh(const CpuBinding& b) { return b.op().attr_text("approximate") == "tanh"; }
bool gated_by_tanh(const CpuBinding& b) { return !b.op().attrs.contains("approximate") || by_tanh(b); }

}  // namespace

BoundCall bind_relu(const CpuBinding& b) {
  using at = operand::relu;
  return with_element_type(b, b.output_tensor(at::s).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Relu<T> args{b.input<T>(at::x), b.output<T>(at::s), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, relu, Relu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_relu_grad(const CpuBinding& b) {
  using at = operand::relu_grad;
  return with_element_type(b, b.output_tensor(at::d_x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const ReluGrad<T> args{b.input<T>(at::s), b.input<T>(at::d_s), b.output<T>(at::d_x), values_of(b),
                           b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, relu_grad, ReluGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_geglu(const CpuBinding& b) {
  using at = operand::geglu;
  return with_element_type(b, b.output_tensor(at::s).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GatedRows<T> in = gated_rows<T, at>(b);
    const Geglu<T> args{.gate = in.gate,
                        .up = in.up,
                        .s = b.output<T>(at::s),
                        .stride = in.stride,
                        .rows = in.rows,
                        .width = in.width,
                        .by_tanh = gated_by_tanh(b),
                        .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, geglu, Geglu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_geglu_grad(const CpuBinding& b) {
  using at = operand::geglu_grad;
  return with_element_type(b, b.output_tensor(at::d_gate).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GatedRows<T> in = gated_rows<T, at>(b);
    const GegluGrad<T> args{.d_s = b.input<T>(at::d_s),
                            .gate = in.gate,
                            .up = in.up,
                            .d_gate = b.output<T>(at::d_gate),
                            .d_up = gated_d_up<T, at>(b, in.width),
                            .stride = in.stride,
                            .rows = in.rows,
                            .width = in.width,
                            .by_tanh = gated_by_tanh(b),
                            .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, geglu_grad, GegluGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_gelu(const CpuBinding& b) {
  using at = operand::gelu;
  return with_element_type(b, b.output_tensor(at::s).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Gelu<T> args{b.input<T>(at::x), b.output<T>(at::s), by_tanh(b), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gelu, Gelu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_gelu_grad(const CpuBinding& b) {
  using at = operand::gelu_grad;
  return with_element_type(b, b.output_tensor(at::d_x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GeluGrad<T> args{.x = b.input<T>(at::x),
                           .d_s = b.input<T>(at::d_s),
                           .d_x = b.output<T>(at::d_x),
                           .by_tanh = by_tanh(b),
                           .count = values_of(b),
                           .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gelu_grad, GeluGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_tanh(const CpuBinding& b) {
  using at = operand::tanh;
  return with_element_type(b, b.output_tensor(at::y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Tanh<T> args{b.input<T>(at::x), b.output<T>(at::y), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, tanh, Tanh<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_tanh_grad(const CpuBinding& b) {
  using at = operand::tanh_grad;
  return with_element_type(b, b.output_tensor(at::d_x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const TanhGrad<T> args{b.input<T>(at::y), b.input<T>(at::d_y), b.output<T>(at::d_x), values_of(b),
                           b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, tanh_grad, TanhGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_scale(const CpuBinding& b) {
  using at = operand::scale;
  return with_element_type(b, b.output_tensor(at::y).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Scale<T> args{b.input<T>(at::x), b.output<T>(at::y),
                        static_cast<float>(b.op().attr_float("factor")), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, scale, Scale<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
