#include "ops/activations_kernels.h"
#include "ops/cpu_dispatch.h"

namespace plimsoll {
namespace {

int64_t values_of(const CpuBinding& b) { return b.output_tensor(0).shape.elements(); }
bool by_tanh(const CpuBinding& b) { return b.op().attr_text("approximate") == "tanh"; }

}  // namespace

BoundCall bind_relu(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Relu<T> args{b.input<T>(0), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = pick<Relu<T>>(b.settings().isa, avx2::relu, avx512::relu, avx512_bf16::relu);
    return [=] { kernel(args); };
  });
}

BoundCall bind_relu_grad(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const ReluGrad<T> args{b.input<T>(0), b.input<T>(1), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel =
        pick<ReluGrad<T>>(b.settings().isa, avx2::relu_grad, avx512::relu_grad, avx512_bf16::relu_grad);
    return [=] { kernel(args); };
  });
}

BoundCall bind_geglu(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Geglu<T> args{b.input<T>(0), b.input<T>(1), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = pick<Geglu<T>>(b.settings().isa, avx2::geglu, avx512::geglu, avx512_bf16::geglu);
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
    const auto kernel =
        pick<GegluGrad<T>>(b.settings().isa, avx2::geglu_grad, avx512::geglu_grad, avx512_bf16::geglu_grad);
    return [=] { kernel(args); };
  });
}

BoundCall bind_gelu(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Gelu<T> args{b.input<T>(0), b.output<T>(0), by_tanh(b), values_of(b), b.settings().threads};
    const auto kernel = pick<Gelu<T>>(b.settings().isa, avx2::gelu, avx512::gelu, avx512_bf16::gelu);
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
    const auto kernel =
        pick<GeluGrad<T>>(b.settings().isa, avx2::gelu_grad, avx512::gelu_grad, avx512_bf16::gelu_grad);
    return [=] { kernel(args); };
  });
}

BoundCall bind_tanh(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Tanh<T> args{b.input<T>(0), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel = pick<Tanh<T>>(b.settings().isa, avx2::tanh, avx512::tanh, avx512_bf16::tanh);
    return [=] { kernel(args); };
  });
}

BoundCall bind_tanh_grad(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const TanhGrad<T> args{b.input<T>(0), b.input<T>(1), b.output<T>(0), values_of(b), b.settings().threads};
    const auto kernel =
        pick<TanhGrad<T>>(b.settings().isa, avx2::tanh_grad, avx512::tanh_grad, avx512_bf16::tanh_grad);
    return [=] { kernel(args); };
  });
}

BoundCall bind_scale(const CpuBinding& b) {
  return with_element_type(b, b.output_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const Scale<T> args{b.input<T>(0), b.output<T>(0), static_cast<float>(b.op().attr_float("factor")),
                        values_of(b), b.settings().threads};
    const auto kernel = pick<Scale<T>>(b.settings().isa, avx2::scale, avx512::scale, avx512_bf16::scale);
    return [=] { kernel(args); };
  });
}

}  // namespace plimsoll
