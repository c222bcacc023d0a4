// lion and sgd, with the bits of the CPU's (ops/optimizer/one_state_simd.cc).
#include "ops/optimizer/gpu_optimizer.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

// -1, 0 or 1; NaN stays NaN.
PL_DEV float sign(float x) { return x > 0 ? 1.0F : x < 0 ? -1.0F : x; }

// w *= 1 - lr * wd;  w -= lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g.
template <class P, class G, class S>
struct Lion {
  GpuWeightUpdate<P, G> update;
  double beta1, beta2;
  S* m;

  struct Coefficients {
    float clip, rate, decay, beta1, beta2, rest1, rest2;
  };
  [[nodiscard]] PL_DEV Coefficients coefficients() const {
    const double rate = update.learning_rate();
    return {update.clip(),
            static_cast<float>(rate),
            static_cast<float>(1.0 - rate * update.weight_decay),
            static_cast<float>(beta1),
            static_cast<float>(beta2),
            static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2)};
  }
  PL_DEV void update_own(const Coefficients& k, Own own) const {
    const Rounder<P> round_weight(update, RandomFor::weight, own);
    const Rounder<S> round_m(update, RandomFor::m, own);
    PL_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int64_t at = own.at(i);
      if (at >= update.count) break;
      const float g = gpu::to_float(update.gradient[at]) * k.clip;
      const float old = gpu::to_float(m[at]);
      const float direction = sign(gpu::fma(g, k.rest1, old * k.beta1));
      put_weight(update, round_weight, at, i,
                 gpu::fma(-k.rate, direction, gpu::to_float(update.weight[at]) * k.decay));
      m[at] = round_m(gpu::fma(g, k.rest2, old * k.beta2), i);
    }
  }
};

// d = g + wd * w;  b = momentum * b + d;  w -= lr * b. The first step's b is d, since b is zero before it.
template <class P, class G, class S>
struct Sgd {
  GpuWeightUpdate<P, G> update;
  double momentum;
  S* buffer;  // null without momentum

  struct Coefficients {
    float clip, rate, decay, momentum;
  };
  [[nodiscard]] PL_DEV Coefficients coefficients() const {
    return {update.clip(), static_cast<float>(update.learning_rate()),
            static_cast<float>(update.weight_decay), static_cast<float>(momentum)};
  }
  PL_DEV void update_own(const Coefficients& k, Own own) const {
    const Rounder<P> round_weight(update, RandomFor::weight, own);
    const Rounder<S> round_buffer(update, RandomFor::m, own);
    PL_UNROLL
    for (int i = 0; i < kOwnElements; ++i) {
      const int64_t at = own.at(i);
      if (at >= update.count) break;
      const float weight = gpu::to_float(update.weight[at]);
      float d = gpu::fma(weight, k.decay, gpu::to_float(update.gradient[at]) * k.clip);
      if (buffer != nullptr) {
        d = gpu::to_float(buffer[at]) * k.momentum + d;
        buffer[at] = round_buffer(d, i);
      }
      put_weight(update, round_weight, at, i, gpu::fma(-k.rate, d, weight));
    }
  }
};

// make(P{}, G{}, S{}) for the types of the weight or its master copy, of gradient and state, which may be
// absent.
template <class Make>
BoundCall with_types(const GpuBinding& b, size_t state_output, size_t master, Make make) {
  const DType state = b.has_output(state_output) ? b.output_tensor(state_output).dtype : DType::f32;
  return with_gpu_update_types(b, master, [&](auto p, auto g) {
    return with_stored_type(b, state, [&](auto s) { return make(p, g, s); });
  });
}

}  // namespace

BoundCall bind_gpu_lion(const GpuBinding& b) {
  using at = operand::lion;
  return with_types(b, at::m, at::master, [&](auto p, auto g, auto s) {
    return bind_gpu_update(
        b, Lion<decltype(p), decltype(g), decltype(s)>{
               gpu_weight_update<decltype(p), decltype(g)>(b, at::master), b.op().attr_float("beta1"),
               b.op().attr_float("beta2"), updated_slice<decltype(s)>(b, at::m)});
  });
}

BoundCall bind_gpu_sgd(const GpuBinding& b) {
  using at = operand::sgd;
  return with_types(b, at::momentum, at::master, [&](auto p, auto g, auto s) {
    return bind_gpu_update(
        b, Sgd<decltype(p), decltype(g), decltype(s)>{
               gpu_weight_update<decltype(p), decltype(g)>(b, at::master), b.op().attr_float("momentum"),
               updated_slice<decltype(s)>(b, at::momentum)});
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
