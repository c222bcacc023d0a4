// adamw8bit, with the bits of the CPU's (ops/optimizer/adamw8bit_simd.cc).
#include <algorithm>

#include "ops/optimizer/adamw8bit_kernels.h"
#include "ops/optimizer/gpu_optimizer.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kCodes = 256;
constexpr int kAdamw8bitThreads = kStateBlock;  // one for each element of a state's block

struct GpuCodedState {
  float values[kCodes];  // of the codes, ascending
  uint8_t* codes;
  float* scales;
};

template <class P, class G>
struct Update8bit {
  GpuWeightUpdate<P, G> update;
  double beta1, beta2, eps;
  GpuCodedState m, v;
};

struct Coefficients {
  float clip, decay, beta1, beta2, rest1, rest2, correction2, eps, step_size;
};

template <class P, class G>
PL_DEV Coefficients coefficients_of(const Update8bit<P, G>& a) {
  const double rate = a.update.learning_rate();
  const double step = step_value(a.update.step, StepValue::optimizer_step);
  const double correction1 = 1.0 - pow(a.beta1, step);
  return {a.update.clip(),
          static_cast<float>(1.0 - rate * a.update.weight_decay),
          static_cast<float>(a.beta1),
          static_cast<float>(a.beta2),
          static_cast<float>(1.0 - a.beta1),
          static_cast<float>(1.0 - a.beta2),
          static_cast<float>(sqrt(1.0 - pow(a.beta2, step))),
          static_cast<float>(a.eps),
          static_cast<float>(-rate / correction1)};
}

// The largest magnitude of the block's elements, in every thread. `parts`: one value per warp.
PL_DEV float block_largest(float x, float* parts) {
  const float largest = gpu::warp_max(x < 0 ? -x : x);
  __syncthreads();  // the parts of the call before have been read
  if (threadIdx.x % gpu::kWarpSize == 0) parts[threadIdx.x / gpu::kWarpSize] = largest;
  __syncthreads();
  float all = parts[0];
  for (int w = 1; w < kAdamw8bitThreads / gpu::kWarpSize; ++w) all = gpu::max(all, parts[w]);
  return all;
}

// The number of midpoints of neighbouring values below x, which is the nearest value's code.
PL_DEV uint8_t nearest_code(const float* values, float x) {
  int code = 0;
  PL_UNROLL
  for (int step = kCodes / 2; step > 0; step /= 2) {
    const int next = code + step;  // the code is that at least if midpoint next - 1 is below x
    if ((values[next - 1] + values[next]) / 2.0F < x) code = next;
  }
  return static_cast<uint8_t>(code);
}

// Codes of a block's elements, this thread's being x, and their scale. Its floor keeps the reciprocal finite
// where a whole block is zero.
PL_DEV void encode(const GpuCodedState& state, const float* values, int64_t block, bool live, float x,
                   float* parts) {
  const float scale = block_largest(x, parts);
  const float inverse = 1.0F / (scale < 1e-38F ? 1e-38F : scale);
  const float unit = x * inverse;
  if (live)
    state.codes[block * kStateBlock + threadIdx.x] = nearest_code(values, unit < -1.0F  ? -1.0F
                                                                          : unit > 1.0F ? 1.0F
                                                                                        : unit);
  if (threadIdx.x == 0) state.scales[block] = scale;
}

// Rounds what is stored as bf16 by the element's random bits.
template <class P, class G>
PL_DEV P rounded_weight(const GpuWeightUpdate<P, G>& u, int64_t at, float weight) {
  if constexpr (sizeof(P) == 2)
    return gpu::rounded_by(weight, philox_bits16(random_stream(u, RandomFor::weight), u.first_element + at));
  else
    return weight;
}

// An element's new moments.
struct Moments {
  float mean = 0, square = 0;
};
template <class P, class G>
PL_DEV Moments update_element(const Update8bit<P, G>& a, const Coefficients& k, int64_t at, float old_mean,
                              float old_square) {
  const GpuWeightUpdate<P, G>& u = a.update;
  const float g = gpu::to_float(u.gradient[at]) * k.clip;
  const Moments now{gpu::fma(g, k.rest1, old_mean * k.beta1), gpu::fma(k.rest2 * g, g, old_square * k.beta2)};
  const float denominator = sqrtf(now.square) / k.correction2 + k.eps;
  const float weight = gpu::to_float(u.weight[at]) * k.decay + k.step_size * now.mean / denominator;
  u.weight[at] = rounded_weight(u, at, weight);
  u.put_copy(at, weight);
  return now;
}

template <class P, class G>
__global__ void __launch_bounds__(kAdamw8bitThreads) update_8bit(Update8bit<P, G> a, int64_t blocks) {
  if (a.update.does_nothing()) return;
  PL_SHARED(Coefficients, shared, 1);
  PL_SHARED(float, m_values, kCodes);
  PL_SHARED(float, v_values, kCodes);
  PL_SHARED(float, parts, kAdamw8bitThreads / gpu::kWarpSize);
  if (threadIdx.x == 0) *shared = coefficients_of(a);
  m_values[threadIdx.x] = a.m.values[threadIdx.x];
  v_values[threadIdx.x] = a.v.values[threadIdx.x];
  __syncthreads();
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t at = block * kStateBlock + threadIdx.x;
    const bool live = at < a.update.count;
    Moments now;  // elements beyond the end are zero
    if (live)
      now = update_element(a, *shared, at, m_values[a.m.codes[at]] * a.m.scales[block],
                           v_values[a.v.codes[at]] * a.v.scales[block]);
    encode(a.m, m_values, block, live, now.mean, parts);
    encode(a.v, v_values, block, live, now.square, parts);
  }
}

GpuCodedState coded_state(const GpuBinding& b, size_t codes, size_t scales, const DynamicMap& map) {
  GpuCodedState state{{}, updated_slice<uint8_t>(b, codes), updated_slice<float>(b, scales, kStateBlock)};
  std::copy(map.value.begin(), map.value.end(), state.values);
  return state;
}

}  // namespace

BoundCall bind_gpu_adamw8bit(const GpuBinding& b) {
  using at = operand::adamw8bit;
  return with_gpu_update_types(b, at::master, [&](auto p, auto g) -> BoundCall {
    using Rule = Update8bit<decltype(p), decltype(g)>;
    const Rule rule{gpu_weight_update<decltype(p), decltype(g)>(b, at::master),
                    b.op().attr_float("beta1"),
                    b.op().attr_float("beta2"),
                    b.op().attr_float("eps"),
                    coded_state(b, at::m, at::m_scale, signed_dynamic_map()),
                    coded_state(b, at::v, at::v_scale, unsigned_dynamic_map())};
    const int64_t blocks = (rule.update.count + kStateBlock - 1) / kStateBlock;
    const auto most = static_cast<int64_t>(b.card().multiprocessors) * kUpdateBlocksPerMultiprocessor;
    return [rule, blocks, grid = static_cast<unsigned>(std::min(blocks, most)), &stream = b.stream()] {
      gpu::launch(stream, {grid}, {kAdamw8bitThreads}, update_8bit<decltype(p), decltype(g)>, rule, blocks);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
