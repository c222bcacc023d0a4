// delta_rule_cached: the next tokens of one sequence, one after another, or of many sequences one token each. A block
// has 32 columns of a head's state in registers. What is computed: ops/delta/delta_rule_kernels.h.
#include "ops/cached_sequences.h"
#include "ops/delta/delta_rule_gpu_scratch.h"
#include "ops/delta/delta_rule_shape.h"
#include "ops/gpu_step.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kDeltaStateThreads = static_cast<int>(kDeltaStateKeys);  // a key each, where keys are read
constexpr int kDeltaStateWarps = kDeltaStateThreads / gpu::kWarpSize;
constexpr int kDeltaThreadKeys = kDeltaStateThreads / kDeltaStateWarps;  // of a thread's column, at most

template <class T>
struct DeltaState {
  const T* q;
  const T* k;
  const T* v;
  const float* g;
  const float* beta;
  T* o;
  float* state;  // [Hv, Dk, Dv], of each sequence
  const double* step;
  StepValue live;
  int tokens, heads, key_heads, key_dim, value_dim;
  float eps;
  bool apart;  // each row continues a sequence of its own
};

// The sum of a column over the warps, in order; in every thread.
PL_DEV float sum_of_column(float x, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  sums[threadIdx.x] = x;
  __syncthreads();
  float sum = 0;
  PL_UNROLL
  for (int w = 0; w < kDeltaStateWarps; ++w) sum += sums[w * gpu::kWarpSize + lane];
  return sum;
}

// Writes a token's row of q or k of unit length, times `factor`.
template <class T>
PL_DEV void put_unit_row(const T* row, int width, float eps, float factor, float* to, float* parts) {
  const int key = static_cast<int>(threadIdx.x);
  const float x = key < width ? gpu::to_float(row[key]) : 0.0F;
  to[key] = factor / sqrtf(gpu::block_sum<kDeltaStateThreads>(x * x, parts) + eps) * x;
}

template <class T>
__global__ void __launch_bounds__(kDeltaStateThreads) delta_states_onwards(DeltaState<T> a) {
  PL_SHARED(float, queries, kDeltaStateThreads);
  PL_SHARED(float, keys, kDeltaStateThreads);
  PL_SHARED(float, found_sums, kDeltaStateThreads);
  PL_SHARED(float, output_sums, kDeltaStateThreads);
  PL_SHARED(float, q_parts, kDeltaStateWarps);
  PL_SHARED(float, k_parts, kDeltaStateWarps);
  const int head = static_cast<int>(blockIdx.y), key_head = head / (a.heads / a.key_heads);
  const int column =
      static_cast<int>(blockIdx.x) * gpu::kWarpSize + static_cast<int>(threadIdx.x) % gpu::kWarpSize;
  const bool has_column = column < a.value_dim;
  const int warp = gpu::warp_of_block(), first = warp * kDeltaThreadKeys;
  const bool fresh = step_value(a.step, StepValue::kv_length) == 0.0;
  const int live = static_cast<int>(step_value(a.step, a.live));
  gpu::require(live >= 1 && live <= a.tokens, "live tokens of delta_rule_cached");
  const int sequence = static_cast<int>(blockIdx.z);
  const int end = !a.apart || sequence >= live ? live : sequence + 1;
  const int64_t state_row = (int64_t{sequence} * a.heads + head) * a.key_dim + first;
  const auto at = [&](int i) { return (state_row + i) * a.value_dim + column; };
  float state[kDeltaThreadKeys] = {};
  PL_UNROLL
  for (int i = 0; i < kDeltaThreadKeys; ++i)
    if (!fresh && sequence < live && has_column && first + i < a.key_dim) state[i] = a.state[at(i)];
  for (int token = sequence; token < end; ++token) {
    const int64_t row = (int64_t{token} * a.key_heads + key_head) * a.key_dim;
    const int64_t gate = int64_t{token} * a.heads + head;
    put_unit_row(a.q + row, a.key_dim, a.eps, 1.0F / sqrtf(static_cast<float>(a.key_dim)), queries, q_parts);
    put_unit_row(a.k + row, a.key_dim, a.eps, 1.0F, keys, k_parts);
    const float kept = a.g[gate] < -87.0F ? 0.0F : gpu::exp(a.g[gate]);
    const float v = has_column ? gpu::to_float(a.v[gate * a.value_dim + column]) : 0.0F;
    __syncthreads();
    float found = 0;
    PL_UNROLL
    for (int i = 0; i < kDeltaThreadKeys; ++i) {
      state[i] *= kept;
      found = gpu::fma(keys[first + i], state[i], found);
    }
    const float u = a.beta[gate] * (v - sum_of_column(found, found_sums));
    float sum = 0;
    PL_UNROLL
    for (int i = 0; i < kDeltaThreadKeys; ++i) {
      state[i] = gpu::fma(keys[first + i], u, state[i]);
      sum = gpu::fma(queries[first + i], state[i], sum);
    }
    sum = sum_of_column(sum, output_sums);
    if (warp == 0 && has_column) a.o[gate * a.value_dim + column] = gpu::rounded<T>(sum);
  }
  if (!has_column) return;
  PL_UNROLL
  for (int i = 0; i < kDeltaThreadKeys; ++i)
    if (sequence < live && first + i < a.key_dim) a.state[at(i)] = state[i];
  if (sequence > 0) return;
  for (int token = live + warp; token < a.tokens; token += kDeltaStateWarps)
    a.o[(int64_t{token} * a.heads + head) * a.value_dim + column] = gpu::rounded<T>(0.0F);
}

}  // namespace

BoundCall bind_gpu_delta_rule_cached(const GpuBinding& b) {
  using at = operand::delta_rule_cached;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const DeltaShape shape = delta_shape(b.graph(), b.op());
    if (shape.key_dim > kDeltaStateKeys) refuse_on_gpu(b, "heads of more than 256 keys");
    const DeltaState<T> a{.q = b.input<T>(at::q),
                          .k = b.input<T>(at::k),
                          .v = b.input<T>(at::v),
                          .g = b.input<float>(at::g),
                          .beta = b.input<float>(at::beta),
                          .o = b.output<T>(at::o),
                          .state = b.output<float>(at::state),
                          .step = b.input<double>(at::step),
                          .live = live_tokens_of(b.op().axis),
                          .tokens = static_cast<int>(shape.tokens),
                          .heads = static_cast<int>(shape.heads),
                          .key_heads = static_cast<int>(shape.key_heads),
                          .key_dim = static_cast<int>(shape.key_dim),
                          .value_dim = static_cast<int>(shape.value_dim),
                          .eps = static_cast<float>(b.op().attr_float("eps")),
                          .apart = continues_apart(b.op())};
    return [a, &stream = b.stream()] {
      const auto sequences = static_cast<unsigned>(a.apart ? a.tokens : 1);
      gpu::launch(stream,
                  {gpu::blocks_of(a.value_dim, gpu::kWarpSize), static_cast<unsigned>(a.heads), sequences},
                  {kDeltaStateThreads}, delta_states_onwards<T>, a);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
