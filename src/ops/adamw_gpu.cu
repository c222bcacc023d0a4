#include "ops/gpu_dispatch.h"
#include "ops/name_hash.h"
#include "ops/optimizer_slices.h"
#include "ops/philox.h"

namespace plimsoll {
namespace {

constexpr int kThreads = 256;
// Blocks to a multiprocessor: enough to hide the memory's latency; each computes the step's numbers once, in
// f64.
constexpr int kBlocksPerMultiprocessor = 4;
// The elements that a counter's four words serve, 16 bits each, lie kLanes apart (ops/philox.h).
constexpr int64_t kLanes = 16;
constexpr int kOwn = 8;
constexpr int64_t kChunk = kOwn * kLanes;

// P: weight, f32 or bf16. G: gradient. S: states. What is bf16 is rounded stochastically.
template <class P, class G, class S>
struct Update {
  const double* step;
  const double* norm;  // null: the gradient is not clipped
  double rate, beta1, beta2, eps, weight_decay;
  uint64_t name_hash;
  P* weight;
  gpu::bf16* copy;  // of an f32 weight, rounded to nearest; may be null
  const G* gradient;
  S* m;
  S* v;
  int64_t count, first_element;
};

struct Coefficients {
  float decay, beta1, beta2, one_minus_beta1, one_minus_beta2, step_size, inverse_correction, eps, clip;
};

// As the CPU has them (ops/adamw_simd.cc).
template <class P, class G, class S>
PL_DEV Coefficients coefficients_of(const Update<P, G, S>& a) {
  const double learning_rate = a.rate * step_value(a.step, StepValue::learning_rate);
  const double step = step_value(a.step, StepValue::optimizer_step);
  const double correction1 = 1.0 - pow(a.beta1, step);
  const double correction2 = 1.0 - pow(a.beta2, step);
  return {static_cast<float>(1.0 - learning_rate * a.weight_decay),
          static_cast<float>(a.beta1),
          static_cast<float>(a.beta2),
          static_cast<float>(1.0 - a.beta1),
          static_cast<float>(1.0 - a.beta2),
          static_cast<float>(learning_rate / correction1),
          static_cast<float>(1.0 / sqrt(correction2)),
          static_cast<float>(a.eps),
          static_cast<float>(clip_factor(a.norm))};
}

// Which of a weight's values random bits are for.
enum class Stream : uint32_t { weight, m, v };

// The random bits of this thread's elements, or none where they are stored as they are.
template <class T>
struct Rounder {
  PL_DEV Rounder(const double*, uint64_t, Stream, int64_t) {}
  PL_DEV T operator()(float x, int) const { return x; }
};
template <>
struct Rounder<gpu::bf16> {
  uint32_t words[4];
  PL_DEV Rounder(const double* step, uint64_t name_hash, Stream which, int64_t counter) {
    const auto number = static_cast<uint64_t>(step_value(step, StepValue::optimizer_step));
    philox(philox_stream(step_seed(step), name_hash, static_cast<uint32_t>(which),
                         static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)),
           static_cast<uint32_t>(counter), words);
  }
  PL_DEV gpu::bf16 operator()(float x, int own) const {
    return gpu::rounded_by(x, words[own % 4] >> (own / 4 * 16) & 0xFFFFU);
  }
};

template <class P, class G, class S>
PL_DEV void update_own(const Update<P, G, S>& a, const Coefficients& k, int64_t number) {
  const int64_t chunk = number / kLanes;
  const int64_t lane = number % kLanes;
  const int64_t counter = a.first_element / kChunk * kLanes + number;
  const Rounder<P> round_weight(a.step, a.name_hash, Stream::weight, counter);
  const Rounder<S> round_m(a.step, a.name_hash, Stream::m, counter);
  const Rounder<S> round_v(a.step, a.name_hash, Stream::v, counter);
  PL_UNROLL
  for (int own = 0; own < kOwn; ++own) {
    const int64_t at = chunk * kChunk + own * kLanes + lane;
    if (at >= a.count) break;
    const float g = gpu::to_float(a.gradient[at]) * k.clip;
    const float m = gpu::fma(gpu::to_float(a.m[at]), k.beta1, g * k.one_minus_beta1);
    const float v = gpu::fma(gpu::to_float(a.v[at]), k.beta2, g * g * k.one_minus_beta2);
    const float denominator = gpu::fma(sqrtf(v), k.inverse_correction, k.eps);
    const float weight = gpu::fma(-k.step_size, m / denominator, gpu::to_float(a.weight[at]) * k.decay);
    a.m[at] = round_m(m, own);
    a.v[at] = round_v(v, own);
    a.weight[at] = round_weight(weight, own);
    if (a.copy != nullptr) a.copy[at] = gpu::rounded<gpu::bf16>(weight);
  }
}

template <class P, class G, class S>
__global__ void __launch_bounds__(kThreads) update(Update<P, G, S> a, int64_t numbers) {
  PL_SHARED(Coefficients, shared, 1);
  if (threadIdx.x == 0) *shared = coefficients_of(a);
  __syncthreads();
  const Coefficients k = *shared;
  for (int64_t number = int64_t{blockIdx.x} * kThreads + threadIdx.x; number < numbers;
       number += int64_t{gridDim.x} * kThreads)
    update_own(a, k, number);
}

template <class P, class G, class S>
BoundCall make_update(const GpuBinding& b) {
  const bool has_master = b.op().has_output(3);
  const ElementRange range = updated_range(b.graph(), b.op());
  const Update<P, G, S> args{b.input<double>(kStepInput),
                             b.input<double>(kNormInput),
                             rate_factor(b.op()),
                             b.op().attr_float("beta1"),
                             b.op().attr_float("beta2"),
                             b.op().attr_float("eps"),
                             b.op().attr_float("weight_decay"),
                             name_hash(b.op().scope),
                             updated_slice<P>(b, has_master ? 3 : 0),
                             has_master ? updated_slice<gpu::bf16>(b, 0) : nullptr,
                             gradient_slice<G>(b),
                             updated_slice<S>(b, 1),
                             updated_slice<S>(b, 2),
                             range.elements,
                             range.first};
  const int64_t numbers = (range.elements + kChunk - 1) / kChunk * kLanes;
  const auto most = static_cast<unsigned>(b.card().multiprocessors * kBlocksPerMultiprocessor);
  const unsigned wanted = gpu::blocks_of(numbers, kThreads);
  return [args, numbers, blocks = wanted < most ? wanted : most, &stream = b.stream()] {
    gpu::launch(stream, {blocks}, {kThreads}, update<P, G, S>, args, numbers);
  };
}

}  // namespace

BoundCall bind_gpu_adamw(const GpuBinding& b) {
  const Tensor& updated = b.output_tensor(b.op().has_output(3) ? 3 : 0);
  return with_gpu_type(b, updated.dtype, [&](auto p) {
    return with_gpu_type(b, b.input_tensor(kGradientInput).dtype, [&](auto g) {
      return with_gpu_type(b, b.output_tensor(1).dtype,
                           [&](auto s) { return make_update<decltype(p), decltype(g), decltype(s)>(b); });
    });
  });
}

}  // namespace plimsoll
