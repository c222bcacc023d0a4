#include "ops/cpu_dispatch.h"
#include "ops/pointwise/activations_kernels.h"

namespace plimsoll {
namespace {

int64_t values_of(const CpuBinding& b) { return b.output_tensor(0).shape.elements(); }
bool by_tanh(const CpuBinding& b) { return b.op().attr_text("approximate") == "tanh"; }

}  // namespace

BoundCall bind_relu(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Relu<T> args{b.input<T>(0), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, relu, Relu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_relu_grad(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const ReluGrad<T> args{b.input<T>(0), b.input<T>(1), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, relu_grad, ReluGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_geglu(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Geglu<T> args{b.input<T>(0), b.input<T>(1), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, geglu, Geglu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_geglu_grad(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GegluGrad<T> args{.d_s = b.input<T>(2),
                            .gate = b.input<T>(0),
                            .up = b.input<T>(1),
                            .d_gate = b.output<T>(0),
                            .d_up = b.output<T>(1),
                            .count = values_of(b),
                            .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, geglu_grad, GegluGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_gelu(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Gelu<T> args{b.input<T>(0), b.output<T>(0), by_tanh(b), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gelu, Gelu<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_gelu_grad(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GeluGrad<T> args{.x = b.input<T>(0),
                           .d_s = b.input<T>(1),
                           .d_x = b.output<T>(0),
                           .by_tanh = by_tanh(b),
                           .count = values_of(b),
                           .threads = b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, gelu_grad, GeluGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_tanh(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Tanh<T> args{b.input<T>(0), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, tanh, Tanh<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_tanh_grad(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const TanhGrad<T> args{b.input<T>(0), b.input<T>(1), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, tanh_grad, TanhGrad<T>);
    return [=] { kernel(args); };
  });
}

BoundCall bind_scale(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Scale<T> args{b.input<T>(0), b.output<T>(0), static_cast<float>(b.op().attr_float("factor")),
                        values_of(b), b.settings().threads};
    const auto kernel = PLIMSOLL_KERNEL(b, scale, Scale<T>);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
