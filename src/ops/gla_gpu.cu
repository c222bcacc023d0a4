// gla and gla_grad, token by token: a block carries a head's state through a sequence, in registers, a thread
// for some keys and 32 columns at a time. Plain, for all shapes; chunks by tensor cores are to come. What is
// computed: ops/gla_kernels.h.
#include "ops/gla_shape.h"
#include "ops/gpu_step.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = 32;  // of a state at a time
constexpr int kMostKeys = 256;
constexpr int kOwnKeys = kMostKeys / kThreads;
constexpr int kParts = kThreads / kColumns;

template <class T>
struct Gla {
  const T* q;
  const T* k;
  const T* v;
  const T* gate;
  GpuSequences where;
  const double* step;
  StepValue sequences;  // how many are live
  int heads, kv_heads, key_dim, value_dim;
  float scale, normalizer, clamp_min;

  [[nodiscard]] PL_DEV int group() const { return heads / kv_heads; }
};
template <class T>
struct GlaGrad {
  Gla<T> a;
  const T* d_o;
  T* d_q;
  T* d_k;
  T* d_v;
  T* d_gate;
  // [T, N, Dk] and [T, K, Dk] in f32: sums over columns, until all are there.
  float* d_q_sums;
  float* d_k_sums;
};

// log(sigmoid(x)), with the CPU's formula (ops/gla_blocks.h).
PL_DEV float log_sigmoid(float x) {
  const float u = gpu::exp(x < 0 ? x : 0.0F - x);
  const float z = u / (u + 2.0F);
  const float z2 = z * z;
  float p = 1.0F / 15.0F;
  p = gpu::fma(p, z2, 1.0F / 13.0F);
  p = gpu::fma(p, z2, 1.0F / 11.0F);
  p = gpu::fma(p, z2, 1.0F / 9.0F);
  p = gpu::fma(p, z2, 1.0F / 7.0F);
  p = gpu::fma(p, z2, 1.0F / 5.0F);
  p = gpu::fma(p, z2, 1.0F / 3.0F);
  p = gpu::fma(p, z2, 1.0F);
  return (x < 0 ? x : 0.0F) - (p + p) * z;
}

// Where a block is: a sequence, and a head of keys and values; and which keys are a thread's.
template <class T>
struct GlaSite {
  const Gla<T>& a;
  int head, begin, end;

  PL_DEV explicit GlaSite(const Gla<T>& all) : a(all), head(static_cast<int>(blockIdx.y)) {
    const bool live = blockIdx.z < static_cast<unsigned>(step_value(a.step, a.sequences));
    begin = live ? a.where.starts[blockIdx.z] : 0;
    end = live ? a.where.starts[blockIdx.z + 1] : 0;
  }
  [[nodiscard]] PL_DEV int64_t key_row(int64_t token) const {
    return (token * a.kv_heads + head) * a.key_dim;
  }
  [[nodiscard]] PL_DEV int64_t value_row(int64_t token) const {
    return (token * a.kv_heads + head) * a.value_dim;
  }
  // Of query head `h` of the group.
  [[nodiscard]] PL_DEV int64_t query_row(int64_t token, int h) const {
    return (token * a.heads + head * a.group() + h) * a.key_dim;
  }
  [[nodiscard]] PL_DEV int64_t output_row(int64_t token, int h) const {
    return (token * a.heads + head * a.group() + h) * a.value_dim;
  }
  // visit(i, key) for the thread's keys.
  template <class Visit>
  PL_DEV void for_keys(Visit visit) const {
    PL_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) {
      const int key = i * kThreads + static_cast<int>(threadIdx.x);
      if (key < a.key_dim) visit(i, key);
    }
  }
  [[nodiscard]] PL_DEV float decay(int64_t token, int key) const {
    const float log_decay = log_sigmoid(gpu::to_float(a.gate[key_row(token) + key])) / a.normalizer;
    return gpu::exp(gpu::max(a.clamp_min, log_decay));
  }
  [[nodiscard]] PL_DEV float k(int64_t token, int key) const {
    return gpu::to_float(a.k[key_row(token) + key]);
  }
  [[nodiscard]] PL_DEV float q(int64_t token, int h, int key) const {
    return a.scale * gpu::to_float(a.q[query_row(token, h) + key]);
  }
};

// A row of values, or of their gradients, from `first` on in shared memory; zeros beyond its end. Everybody
// is done with the last one.
template <class T>
PL_DEV void fetch_columns(const T* row, int first, int value_dim, float* to) {
  if (threadIdx.x < kColumns) {
    const int column = first + static_cast<int>(threadIdx.x);
    to[threadIdx.x] = column < value_dim ? gpu::to_float(row[column]) : 0.0F;
  }
  __syncthreads();
}

// The sums of `own` over the block's threads, in their order, in the first kColumns threads. All have read
// what they read before when it returns. `space`:
// [kThreads][kColumns + 1]; `parts`: [kParts][kColumns].
PL_DEV float sum_columns(const float (&own)[kColumns], float* space, float* parts) {
  const int thread = static_cast<int>(threadIdx.x);
  PL_UNROLL
  for (int c = 0; c < kColumns; ++c) space[thread * (kColumns + 1) + c] = own[c];
  __syncthreads();
  const int column = thread % kColumns, part = thread / kColumns;
  float sum = 0;
  for (int t = part * kColumns; t < (part + 1) * kColumns; ++t) sum += space[t * (kColumns + 1) + column];
  parts[part * kColumns + column] = sum;
  __syncthreads();
  sum = 0;
  for (int p = 0; p < kParts; ++p) sum += parts[p * kColumns + column];
  return sum;
}

// S = diag(decay) S + k^T v for the thread's keys.
template <class T>
PL_DEV void advance(const GlaSite<T>& at, int64_t token, const float* v, float (&state)[kOwnKeys][kColumns]) {
  at.for_keys([&](int i, int key) {
    const float decay = at.decay(token, key), k = at.k(token, key);
    PL_UNROLL
    for (int c = 0; c < kColumns; ++c) state[i][c] = gpu::fma(state[i][c], decay, k * v[c]);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward(Gla<T> a, T* o) {
  PL_SHARED(float, v, kColumns);
  PL_SHARED(float, space, kThreads*(kColumns + 1));
  PL_SHARED(float, parts, kParts* kColumns);
  const GlaSite<T> at(a);
  const int first = static_cast<int>(blockIdx.x) * kColumns;
  float state[kOwnKeys][kColumns] = {};
  for (int64_t token = at.begin; token < at.end; ++token) {
    fetch_columns(a.v + at.value_row(token), first, a.value_dim, v);
    advance(at, token, v, state);
    for (int h = 0; h < a.group(); ++h) {
      float own[kColumns] = {};
      at.for_keys([&](int i, int key) {
        const float q = at.q(token, h, key);
        PL_UNROLL
        for (int c = 0; c < kColumns; ++c) own[c] = gpu::fma(q, state[i][c], own[c]);
      });
      const float sum = sum_columns(own, space, parts);
      const int column = first + static_cast<int>(threadIdx.x);
      if (threadIdx.x < kColumns && column < a.value_dim)
        o[at.output_row(token, h) + column] = gpu::rounded<T>(sum);
    }
  }
}

PL_DEV float dot_columns(const float (&a)[kColumns], const float* b) {
  float sum = 0;
  PL_UNROLL
  for (int c = 0; c < kColumns; ++c) sum = gpu::fma(a[c], b[c], sum);
  return sum;
}

// d_q, from the states in their order: adds the sums over some columns.
template <class T>
PL_DEV void add_query_sums(const GlaGrad<T>& g, const GlaSite<T>& at, int first, float* row) {
  const Gla<T>& a = g.a;
  float state[kOwnKeys][kColumns] = {};
  for (int64_t token = at.begin; token < at.end; ++token) {
    fetch_columns(a.v + at.value_row(token), first, a.value_dim, row);
    advance(at, token, row, state);
    __syncthreads();
    for (int h = 0; h < a.group(); ++h) {
      fetch_columns(g.d_o + at.output_row(token, h), first, a.value_dim, row);
      at.for_keys([&](int i, int key) {
        float& to = g.d_q_sums[at.query_row(token, h) + key];
        to = (first == 0 ? 0.0F : to) + a.scale * dot_columns(state[i], row);
      });
      __syncthreads();
    }
  }
}

// The gradients of the states, from the last token to the first: adds to the sums of d_k, writes d_v.
template <class T>
PL_DEV void walk_back(const GlaGrad<T>& g, const GlaSite<T>& at, int first, float* row, float* space,
                      float* parts) {
  const Gla<T>& a = g.a;
  float d_state[kOwnKeys][kColumns] = {};
  for (int64_t token = at.end - 1; token >= at.begin; --token) {
    for (int h = 0; h < a.group(); ++h) {
      fetch_columns(g.d_o + at.output_row(token, h), first, a.value_dim, row);
      at.for_keys([&](int i, int key) {
        const float q = at.q(token, h, key);
        PL_UNROLL
        for (int c = 0; c < kColumns; ++c) d_state[i][c] = gpu::fma(q, row[c], d_state[i][c]);
      });
      __syncthreads();
    }
    fetch_columns(a.v + at.value_row(token), first, a.value_dim, row);
    float own[kColumns] = {};
    at.for_keys([&](int i, int key) {
      float& to = g.d_k_sums[at.key_row(token) + key];
      to = (first == 0 ? 0.0F : to) + dot_columns(d_state[i], row);
      const float k = at.k(token, key), decay = at.decay(token, key);
      PL_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        own[c] = gpu::fma(k, d_state[i][c], own[c]);
        d_state[i][c] *= decay;
      }
    });
    const float sum = sum_columns(own, space, parts);
    const int column = first + static_cast<int>(threadIdx.x);
    if (threadIdx.x < kColumns && column < a.value_dim)
      g.d_v[at.value_row(token) + column] = gpu::rounded<T>(sum);
  }
}

// The gradient by a key's logarithmic decay is the sum from its token on of q d_q - k d_k: f64, as most of it
// cancels. Nothing where clamp_min holds.
template <class T>
PL_DEV void finish_keys(const GlaGrad<T>& g, const GlaSite<T>& at) {
  const Gla<T>& a = g.a;
  at.for_keys([&](int, int key) {
    double d_decay = 0;
    for (int64_t token = at.end - 1; token >= at.begin; --token) {
      const float d_k = g.d_k_sums[at.key_row(token) + key];
      for (int h = 0; h < a.group(); ++h) {
        const int64_t q_at = at.query_row(token, h) + key;
        d_decay += static_cast<double>(gpu::to_float(a.q[q_at])) * static_cast<double>(g.d_q_sums[q_at]);
        g.d_q[q_at] = gpu::rounded<T>(g.d_q_sums[q_at]);
      }
      d_decay -= static_cast<double>(at.k(token, key)) * static_cast<double>(d_k);
      const float x = gpu::to_float(a.gate[at.key_row(token) + key]);
      const bool free = log_sigmoid(x) / a.normalizer >= a.clamp_min;
      const float slope = gpu::sigmoid(0.0F - x) / a.normalizer;
      g.d_gate[at.key_row(token) + key] = gpu::rounded<T>(free ? static_cast<float>(d_decay) * slope : 0.0F);
      g.d_k[at.key_row(token) + key] = gpu::rounded<T>(d_k);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward(GlaGrad<T> g) {
  PL_SHARED(float, row, kColumns);
  PL_SHARED(float, space, kThreads*(kColumns + 1));
  PL_SHARED(float, parts, kParts* kColumns);
  const GlaSite<T> at(g.a);
  for (int first = 0; first < g.a.value_dim; first += kColumns) {
    add_query_sums(g, at, first, row);
    walk_back(g, at, first, row, space, parts);
  }
  finish_keys(g, at);
}

// `starts` and the step tensor are the last two inputs.
template <class T>
Gla<T> operands_of(const GpuBinding& b, size_t starts) {
  const GlaShape shape = gla_shape(b.graph(), b.op());
  if (shape.key_dim > kMostKeys)
    refuse_on_gpu(b,
                  "gated linear attention with keys of more than " + std::to_string(kMostKeys) + " values");
  const auto number = [&](const char* name) { return static_cast<float>(b.op().attr_float(name)); };
  return {.q = b.input<T>(0),
          .k = b.input<T>(1),
          .v = b.input<T>(2),
          .gate = b.input<T>(3),
          .where = {b.input<int32_t>(starts), shape.tokens},
          .step = b.input<double>(starts + 1),
          .sequences = live_sequences_of(b.op().axis),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .key_dim = static_cast<int>(shape.key_dim),
          .value_dim = static_cast<int>(shape.value_dim),
          .scale = number("scale"),
          .normalizer = number("normalizer"),
          .clamp_min = number("clamp_min")};
}

template <class T>
void clear_beyond(gpu::Stream& stream, T* rows, int64_t width, const Gla<T>& a) {
  gpu::launch(stream, {static_cast<unsigned>(a.where.tokens)}, {kPaddingThreads}, clear_padding<T>, rows,
              width, a.where, a.step, a.sequences);
}

}  // namespace

BoundCall bind_gpu_gla(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [a = operands_of<T>(b, 4), o = b.output<T>(0),
            sequences = static_cast<unsigned>(b.input_tensor(4).shape[0] - 1), &stream = b.stream()] {
      clear_beyond(stream, o, int64_t{a.heads} * a.value_dim, a);
      gpu::launch(stream,
                  {gpu::blocks_of(a.value_dim, kColumns), static_cast<unsigned>(a.kv_heads), sequences},
                  {kThreads}, forward<T>, a, o);
    };
  });
}

BoundCall bind_gpu_gla_grad(const GpuBinding& b) {
  return with_gpu_type(b, b.input_tensor(0).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    GlaGrad<T> g{.a = operands_of<T>(b, 5),
                 .d_o = b.input<T>(4),
                 .d_q = b.output<T>(0),
                 .d_k = b.output<T>(1),
                 .d_v = b.output<T>(2),
                 .d_gate = b.output<T>(3),
                 .d_q_sums = reinterpret_cast<float*>(b.scratch()),
                 .d_k_sums = nullptr};
    g.d_k_sums = g.d_q_sums + b.input_tensor(0).shape.elements();
    return [g, sequences = static_cast<unsigned>(b.input_tensor(5).shape[0] - 1), &stream = b.stream()] {
      clear_beyond(stream, g.d_q, int64_t{g.a.heads} * g.a.key_dim, g.a);
      clear_beyond(stream, g.d_k, int64_t{g.a.kv_heads} * g.a.key_dim, g.a);
      clear_beyond(stream, g.d_v, int64_t{g.a.kv_heads} * g.a.value_dim, g.a);
      clear_beyond(stream, g.d_gate, int64_t{g.a.kv_heads} * g.a.key_dim, g.a);
      gpu::launch(stream, {1, static_cast<unsigned>(g.a.kv_heads), sequences}, {kThreads}, backward<T>, g);
    };
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
