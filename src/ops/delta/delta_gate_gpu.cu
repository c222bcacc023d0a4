// delta_gate and its gradient. What is computed: ops/delta/delta_gate_kernels.h.
#include "ops/delta/delta_gate_kernels.h"
#include "ops/gpu_norm_rows.h"
#include "ops/gpu_step.h"
#include "ops/scan/gpu_gla_decay.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kGateThreads = 256;
constexpr int kGateWarps = kGateThreads / gpu::kWarpSize;

// The logit of a decay and what is made of it.
struct Decay {
  float x, rate;

  template <class T, class W>
  PL_DEV Decay(T a, W a_log, W dt_bias)
      : x(gpu::to_float(a) + gpu::to_float(dt_bias)), rate(0.0F - gpu::exp(gpu::to_float(a_log))) {}
  [[nodiscard]] PL_DEV float softplus() const { return 0.0F - log_sigmoid(0.0F - x); }
};

template <class T, class W>
__global__ void __launch_bounds__(kGateThreads) delta_gate(DeltaGate<T, W> a) {
  const int64_t at = int64_t{blockIdx.x} * kGateThreads + threadIdx.x;
  if (at >= a.rows * a.heads) return;
  const int64_t head = at % a.heads;
  const Decay decay(a.a[at], a.a_log[head], a.dt_bias[head]);
  a.g[at] = decay.rate * decay.softplus();
  a.beta[at] = gpu::to_float(gpu::rounded<T>(gpu::sigmoid(gpu::to_float(a.b[at]))));
}

// A block has kDeltaGateRows rows of 32 heads, a warp every eighth row.
template <class T, class W, class G>
__global__ void __launch_bounds__(kGateThreads)
    delta_gate_grad(DeltaGateGrad<T, W, G> a, const double* step, AxisId axis) {
  PL_SHARED(float, of_a_log, kGateThreads);
  PL_SHARED(float, of_dt_bias, kGateThreads);
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  const int64_t head = int64_t{blockIdx.y} * gpu::kWarpSize + lane;
  const int64_t first = int64_t{blockIdx.x} * kDeltaGateRows;
  const int64_t end = first + kDeltaGateRows < a.rows ? first + kDeltaGateRows : a.rows;
  const int64_t live = live_tokens(step, axis);
  float d_a_log = 0, d_dt_bias = 0;
  for (int64_t row = first + gpu::warp_of_block(); row < end && head < a.heads; row += kGateWarps) {
    const int64_t at = row * a.heads + head;
    const Decay decay(a.a[at], a.a_log[head], a.dt_bias[head]);
    const float d_x = decay.rate * gpu::sigmoid(decay.x) * a.d_g[at];
    const float beta = gpu::sigmoid(gpu::to_float(a.b[at]));
    if (a.d_a != nullptr) a.d_a[at] = gpu::rounded<T>(d_x);
    if (a.d_b != nullptr) a.d_b[at] = gpu::rounded<T>(a.d_beta[at] * beta * (1.0F - beta));
    if (row >= live) continue;  // padding holds nothing and would disturb the weights' gradients
    d_a_log = gpu::fma(a.d_g[at], decay.rate * decay.softplus(), d_a_log);
    d_dt_bias += d_x;
  }
  if (a.partials == nullptr) return;
  of_a_log[threadIdx.x] = d_a_log;
  of_dt_bias[threadIdx.x] = d_dt_bias;
  __syncthreads();
  if (threadIdx.x >= gpu::kWarpSize || head >= a.heads) return;
  for (int warp = 1; warp < kGateWarps; ++warp) {
    d_a_log += of_a_log[warp * gpu::kWarpSize + lane];
    d_dt_bias += of_dt_bias[warp * gpu::kWarpSize + lane];
  }
  a.partials[blockIdx.x * a.heads + head] = d_a_log;
  a.partials[(int64_t{gridDim.x} + blockIdx.x) * a.heads + head] = d_dt_bias;
}

template <class T, class W, class G>
BoundCall make_delta_gate_grad(const GpuBinding& b) {
  using at = operand::delta_gate_grad;
  const DeltaGateGrad<T, W, G> a{.a = b.input<T>(at::a),
                                 .b = b.input<T>(at::b),
                                 .a_log = b.input<W>(at::a_log),
                                 .dt_bias = b.input<W>(at::dt_bias),
                                 .d_g = b.input<float>(at::d_g),
                                 .d_beta = b.input<float>(at::d_beta),
                                 .d_a = b.output<T>(at::d_a),
                                 .d_b = b.output<T>(at::d_b),
                                 .d_a_log = b.output<G>(at::d_a_log),
                                 .d_dt_bias = b.output<G>(at::d_dt_bias),
                                 .partials = reinterpret_cast<float*>(b.scratch()),
                                 .rows = b.input_tensor(at::a).shape[0],
                                 .heads = b.input_tensor(at::a).shape[1]};
  const double* const step = b.input<double>(at::step);
  const AxisId axis = b.op().axis;
  const NormLive of_a_log{step, axis, 1, b.op().attr_int("accumulate")};
  const NormLive of_dt_bias{step, axis, 1, b.op().attr_int("accumulate_bias")};
  return [=, &stream = b.stream()] {
    const int64_t blocks = delta_gate_blocks(a.rows);
    gpu::launch(stream, {static_cast<unsigned>(blocks), gpu::blocks_of(a.heads, gpu::kWarpSize)},
                {kGateThreads}, delta_gate_grad<T, W, G>, a, step, axis);
    const auto sum = [&](const float* partials, const NormLive& live, G* to) {
      if (to != nullptr)
        gpu::launch(stream, {gpu::blocks_of(a.heads, kNormThreads)}, {kNormThreads}, sum_parts<G>, partials,
                    blocks, a.heads, live, to);
    };
    sum(a.partials, of_a_log, a.d_a_log);
    sum(a.partials + blocks * a.heads, of_dt_bias, a.d_dt_bias);
  };
}

}  // namespace

BoundCall bind_gpu_delta_gate(const GpuBinding& b) {
  using at = operand::delta_gate;
  return with_weight_types(b, b.input_tensor(at::a).dtype, b.input_tensor(at::a_log).dtype,
                           [&](auto t, auto w) -> BoundCall {
                             using T = decltype(t);
                             using W = decltype(w);
                             const DeltaGate<T, W> a{.a = b.input<T>(at::a),
                                                     .b = b.input<T>(at::b),
                                                     .a_log = b.input<W>(at::a_log),
                                                     .dt_bias = b.input<W>(at::dt_bias),
                                                     .g = b.output<float>(at::g),
                                                     .beta = b.output<float>(at::beta),
                                                     .rows = b.input_tensor(at::a).shape[0],
                                                     .heads = b.input_tensor(at::a).shape[1]};
                             return [a, &stream = b.stream()] {
                               gpu::launch(stream, {gpu::blocks_of(a.rows * a.heads, kGateThreads)},
                                           {kGateThreads}, delta_gate<T, W>, a);
                             };
                           });
}

BoundCall bind_gpu_delta_gate_grad(const GpuBinding& b) {
  using at = operand::delta_gate_grad;
  const DType weight = b.input_tensor(at::a_log).dtype;
  DType gradient = DType::f32;
  if (b.has_output(at::d_a_log)) gradient = b.output_tensor(at::d_a_log).dtype;
  if (b.has_output(at::d_dt_bias)) gradient = b.output_tensor(at::d_dt_bias).dtype;
  return with_weight_types(b, b.input_tensor(at::a).dtype, weight, [&](auto t, auto w) {
    return with_gpu_types(b, weight, gradient, [&](auto, auto g) {
      return make_delta_gate_grad<decltype(t), decltype(w), decltype(g)>(b);
    });
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
