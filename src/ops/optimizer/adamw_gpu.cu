#include "ops/optimizer/gpu_optimizer.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// p *= 1 - lr * wd;  m, v averages;  p -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps),  c = 1 - beta^step; with
// the bits of the CPU's (ops/optimizer/adamw_simd.cc).
template <class P, class G, class S>
struct AdamW {
  GpuWeightUpdate<P, G> update;
  double beta1, beta2, eps;
  S* m;
  S* v;

  struct Coefficients {
    float decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, inverse_correction, eps, clip;
  };
  [[nodiscard]] PL_DEV Coefficients coefficients() const {
    const double rate = update.learning_rate();
    const double step = step_value(update.step, StepValue::optimizer_step);
    const double correction1 = 1.0 - pow(beta1, step);
    const double correction2 = 1.0 - pow(beta2, step);
    return {static_cast<float>(1.0 - rate * update.weight_decay),
            static_cast<float>(beta1),
            static_cast<float>(beta2),
            static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2),
            static_cast<float>(rate / correction1),
            static_cast<float>(1.0 / sqrt(correction2)),
            static_cast<float>(eps),
            update.clip()};
  }
  PL_DEV void update_own(const Coefficients& k, Own own) const {
    const Rounder<P> round_weight(update, RandomFor::weight, own);
    const Rounder<S> round_m(update, RandomFor::m, own);
    const Rounder<S> round_v(update, RandomFor::v, own);
    PL_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int64_t at = own.at(i);
      if (at >= update.count) break;
      const float g = gpu::to_float(update.gradient[at]) * k.clip;
      const float mean = gpu::fma(gpu::to_float(m[at]), k.beta1, g * k.one_minus_beta1);
      const float square = gpu::fma(gpu::to_float(v[at]), k.beta2, g * g * k.one_minus_beta2);
      const float denominator = gpu::fma(sqrtf(square), k.inverse_correction, k.eps);
      m[at] = round_m(mean, i);
      v[at] = round_v(square, i);
      put_weight(update, round_weight, at, i,
                 gpu::fma(-k.step_size, mean / denominator, gpu::to_float(update.weight[at]) * k.decay));
    }
  }
};

}  // namespace

BoundCall bind_gpu_adamw(const GpuBinding& b) {
  using at = operand::adamw;
  return with_gpu_update_types(b, at::master, [&](auto p, auto g) {
    return with_stored_type(b, b.output_tensor(at::m).dtype, [&](auto s) {
      using S = decltype(s);
      return bind_gpu_update(
          b, AdamW<decltype(p), decltype(g), S>{gpu_weight_update<decltype(p), decltype(g)>(b, at::master),
                                                b.op().attr_float("beta1"), b.op().attr_float("beta2"),
                                                b.op().attr_float("eps"), updated_slice<S>(b, at::m),
                                                updated_slice<S>(b, at::v)});
    });
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
