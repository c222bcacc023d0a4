// gla_cached: the next tokens of one sequence, one after another. A block has 32 columns of a head's state,
// and up to 256 keys of it, in registers; a head of more keys has several blocks, whose outputs are added up
// in order. What is computed: ops/scan/gla_kernels.h.
#include "ops/gpu_step.h"
#include "ops/scan/gla_gpu_scratch.h"
#include "ops/scan/gla_shape.h"
#include "ops/scan/gpu_gla_decay.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kStateKeys = static_cast<int>(kGlaStateKeys);
constexpr int kStateThreads = kStateKeys;  // a key each, where keys are read
constexpr int kStateWarps = kStateThreads / gpu::kWarpSize;
constexpr int kThreadKeys = kStateKeys / kStateWarps;  // of a thread's column, at most

template <class T>
struct GlaState {
  const T* q;
  const T* k;
  const T* v;
  const T* gate;
  T* o;
  float* state;  // [K, Dk, Dv]
  float* parts;  // [tiles of keys, tokens, N, Dv]; null: there is one tile
  const double* step;
  StepValue live;
  int tokens, heads, kv_heads, key_dim, value_dim;
  float scale, normalizer, clamp_min;

  [[nodiscard]] PL_DEV int group() const { return heads / kv_heads; }
  [[nodiscard]] PL_DEV int live_rows() const { return static_cast<int>(step_value(step, live)); }
  [[nodiscard]] PL_DEV int64_t output_at(int token, int head, int column) const {
    return (int64_t{token} * heads + head) * value_dim + column;
  }
};

// A block's part of a state. A round is a token and one of the heads that read it.
template <class T>
struct StatePart {
  const GlaState<T>& a;
  int kv_head, key0, keys, column;

  PL_DEV explicit StatePart(const GlaState<T>& of)
      : a(of),
        kv_head(static_cast<int>(blockIdx.y)),
        key0(static_cast<int>(blockIdx.z) * kStateKeys),
        keys(of.key_dim - key0 < kStateKeys ? of.key_dim - key0 : kStateKeys),
        column(static_cast<int>(blockIdx.x) * gpu::kWarpSize +
               static_cast<int>(threadIdx.x) % gpu::kWarpSize) {}
  [[nodiscard]] PL_DEV bool has_column() const { return column < a.value_dim; }
  [[nodiscard]] PL_DEV int64_t state_at(int key) const {
    return (int64_t{kv_head} * a.key_dim + key0 + key) * a.value_dim + column;
  }
  [[nodiscard]] PL_DEV int head(int round) const { return kv_head * a.group() + round % a.group(); }

  // A thread's part of a round: of its key, and of its column.
  struct Row {
    float q = 0, k = 0, decay = 0, v = 0;
  };
  [[nodiscard]] PL_DEV Row load(int round) const {
    const int token = round / a.group(), key = static_cast<int>(threadIdx.x);
    Row row;
    if (key < keys) {
      const int64_t at = (int64_t{token} * a.kv_heads + kv_head) * a.key_dim + key0 + key;
      row.q = a.scale * gpu::to_float(a.q[(int64_t{token} * a.heads + head(round)) * a.key_dim + key0 + key]);
      row.k = gpu::to_float(a.k[at]);
      row.decay = gla_decay(gpu::to_float(a.gate[at]), a.normalizer, a.clamp_min);
    }
    if (has_column())
      row.v = gpu::to_float(a.v[(int64_t{token} * a.kv_heads + kv_head) * a.value_dim + column]);
    return row;
  }

  // The round's output, of the sums of all warps: by one of them.
  PL_DEV void put(int round, const float* sums) const {
    if (gpu::warp_of_block() != round % kStateWarps || !has_column()) return;
    const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
    float sum = 0;
    PL_UNROLL
    for (int w = 0; w < kStateWarps; ++w) sum += sums[w * gpu::kWarpSize + lane];
    const int64_t at = a.output_at(round / a.group(), head(round), column);
    if (a.parts == nullptr) {
      a.o[at] = gpu::rounded<T>(sum);
    } else {
      a.parts[int64_t{blockIdx.z} * a.tokens * a.heads * a.value_dim + at] = sum;
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kStateThreads) gla_states_onwards(GlaState<T> a) {
  // Two of each: what a round leaves is read in the next one.
  PL_SHARED(float, queries, 2 * kStateKeys);
  PL_SHARED(float, keys, 2 * kStateKeys);
  PL_SHARED(float, decays, 2 * kStateKeys);
  PL_SHARED(float, sums, 2 * kStateThreads);
  const StatePart<T> part(a);
  const int thread = static_cast<int>(threadIdx.x);
  const int of_warp = (part.keys + kStateWarps - 1) / kStateWarps;
  const int first = gpu::warp_of_block() * of_warp;
  const int own = first + of_warp <= part.keys ? of_warp : part.keys - first;  // none: zero or less
  const bool fresh = step_value(a.step, StepValue::kv_length) == 0.0;
  const int live = a.live_rows();
  gpu::require(live >= 1 && live <= a.tokens, "live tokens of gla_cached");
  float state[kThreadKeys] = {};
  if (!fresh && part.has_column()) {
    PL_UNROLL
    for (int i = 0; i < kThreadKeys; ++i)
      if (i < own) state[i] = a.state[part.state_at(first + i)];
  }
  const int rounds = live * a.group();
  auto row = part.load(0);
  for (int round = 0; round < rounds; ++round) {
    const bool of_new_token = round % a.group() == 0;
    const int buffer = round % 2 * kStateKeys, token_buffer = round / a.group() % 2 * kStateKeys;
    const float v = row.v;
    if (thread < part.keys) {
      queries[buffer + thread] = row.q;
      if (of_new_token) {
        keys[token_buffer + thread] = row.k;
        decays[token_buffer + thread] = row.decay;
      }
    }
    __syncthreads();
    if (round > 0) part.put(round - 1, sums + (round - 1) % 2 * kStateThreads);
    if (round + 1 < rounds) row = part.load(round + 1);  // on its way while this round is computed
    float sum = 0;
    PL_UNROLL
    for (int i = 0; i < kThreadKeys; ++i) {
      if (i >= own) break;
      if (of_new_token)
        state[i] = gpu::fma(keys[token_buffer + first + i], v, decays[token_buffer + first + i] * state[i]);
      sum = gpu::fma(queries[buffer + first + i], state[i], sum);
    }
    sums[round % 2 * kStateThreads + thread] = sum;
  }
  __syncthreads();
  part.put(rounds - 1, sums + (rounds - 1) % 2 * kStateThreads);
  if (!part.has_column()) return;
  PL_UNROLL
  for (int i = 0; i < kThreadKeys; ++i)
    if (i < own) a.state[part.state_at(first + i)] = state[i];
  if (a.parts != nullptr || thread >= gpu::kWarpSize) return;
  for (int round = rounds; round < a.tokens * a.group(); ++round)
    a.o[a.output_at(round / a.group(), part.head(round), part.column)] = gpu::rounded<T>(0.0F);
}

// Outputs from those of all tiles of keys.
template <class T>
__global__ void __launch_bounds__(kStateThreads) gla_sum_tiles(GlaState<T> a, int tiles) {
  const int64_t row = blockIdx.x, column = int64_t{blockIdx.y} * kStateThreads + threadIdx.x;
  if (column >= a.value_dim) return;
  float sum = 0;
  if (row < int64_t{a.live_rows()} * a.heads)
    for (int tile = 0; tile < tiles; ++tile)
      sum += a.parts[(int64_t{tile} * a.tokens * a.heads + row) * a.value_dim + column];
  a.o[row * a.value_dim + column] = gpu::rounded<T>(sum);
}

}  // namespace

BoundCall bind_gpu_gla_cached(const GpuBinding& b) {
  using at = operand::gla_cached;
  return with_gpu_type(b, b.input_tensor(at::q).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    const GlaShape shape = gla_shape(b.graph(), b.op());
    const auto number = [&](const char* name) { return static_cast<float>(b.op().attr_float(name)); };
    const GlaState<T> a{.q = b.input<T>(at::q),
                        .k = b.input<T>(at::k),
                        .v = b.input<T>(at::v),
                        .gate = b.input<T>(at::gate),
                        .o = b.output<T>(at::o),
                        .state = b.output<float>(at::state),
                        .parts = reinterpret_cast<float*>(b.scratch()),
                        .step = b.input<double>(at::step),
                        .live = live_tokens_of(b.op().axis),
                        .tokens = static_cast<int>(shape.tokens),
                        .heads = static_cast<int>(shape.heads),
                        .kv_heads = static_cast<int>(shape.kv_heads),
                        .key_dim = static_cast<int>(shape.key_dim),
                        .value_dim = static_cast<int>(shape.value_dim),
                        .scale = number("scale"),
                        .normalizer = number("normalizer"),
                        .clamp_min = number("clamp_min")};
    return [a, &stream = b.stream()] {
      const unsigned tiles = gpu::blocks_of(a.key_dim, kStateKeys);
      gpu::launch(stream,
                  {gpu::blocks_of(a.value_dim, gpu::kWarpSize), static_cast<unsigned>(a.kv_heads), tiles},
                  {kStateThreads}, gla_states_onwards<T>, a);
      if (a.parts == nullptr) return;
      gpu::launch(stream,
                  {static_cast<unsigned>(a.tokens) * static_cast<unsigned>(a.heads),
                   gpu::blocks_of(a.value_dim, kStateThreads)},
                  {kStateThreads}, gla_sum_tiles<T>, a, static_cast<int>(tiles));
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
