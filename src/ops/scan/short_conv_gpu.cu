// short_conv and its gradient: a thread an element, which makes again what its neighbours make too. Plain;
// reads come from the caches. short_conv_cached: a thread a channel. What is computed:
// ops/scan/short_conv_kernels.h.
#include "ops/cached_sequences.h"
#include "ops/gpu_norm_rows.h"
#include "ops/gpu_step.h"
#include "ops/scan/short_conv_kernels.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr int kConvThreads = 128;

template <class T, class W>
struct Conv {
  const T* x;
  const W* weight;
  GpuSequences where;
  const int32_t* parents;  // of segments of trees; null: sequences are apart
  const double* step;
  StepValue sequences;
  int64_t width;
  int taps;

  // The rows of the token's sequence; padding has none, in which no row is.
  struct Range {
    int64_t begin = INT64_MAX, end = 0;
    int64_t segment = -1;
  };
  [[nodiscard]] PL_DEV Range sequence(int64_t token) const {
    const auto live = static_cast<int64_t>(step_value(step, sequences));
    const int64_t q = sequence_of(where.starts, live, token);
    if (q < 0) return {};
    return at(q);
  }
  [[nodiscard]] PL_DEV Range at(int64_t segment) const {
    return {where.starts[segment], where.starts[segment + 1], segment};
  }
  // The row that lies `back` tokens before one, or -1.
  [[nodiscard]] PL_DEV int64_t row_before(const Range& in, int64_t token, int64_t back) const {
    int64_t begin = in.begin, segment = in.segment;
    while (token - back < begin) {
      if (parents == nullptr || segment < 0 || parents[segment] < 0) return -1;
      segment = parents[segment];
      back -= token - begin + 1;
      begin = where.starts[segment];
      token = where.starts[segment + 1] - 1;
    }
    return token - back;
  }
  [[nodiscard]] PL_DEV float tap(int64_t channel, int j) const {
    return gpu::to_float(weight[channel * taps + taps - 1 - j]);
  }
  [[nodiscard]] PL_DEV float sum(const Range& in, int64_t token, int64_t channel) const {
    float s = 0;
    for (int j = 0; j < taps; ++j) {
      const int64_t row = row_before(in, token, j);
      if (row < 0) break;
      s = gpu::fma(tap(channel, j), gpu::to_float(x[row * width + channel]), s);
    }
    return s;
  }
};

PL_DEV float logistic(float x) { return 1.0F / (1.0F + gpu::exp(0.0F - x)); }

PL_DEV int64_t own_channel() { return int64_t{blockIdx.y} * kConvThreads + threadIdx.x; }

template <class T, class W>
__global__ void __launch_bounds__(kConvThreads) forward(Conv<T, W> a, T* y) {
  const int64_t token = blockIdx.x, channel = own_channel();
  if (channel >= a.width) return;
  const float s = a.sum(a.sequence(token), token, channel);
  y[token * a.width + channel] = gpu::rounded<T>(s * logistic(s));
}

// The gradient of a sum.
template <class T, class W>
PL_DEV float d_sum(const Conv<T, W>& a, const T* d_y, const typename Conv<T, W>::Range& in, int64_t token,
                   int64_t channel) {
  const float s = a.sum(in, token, channel);
  const float sig = logistic(s);
  return gpu::to_float(d_y[token * a.width + channel]) * sig * gpu::fma(s, 1.0F - sig, 1.0F);
}

// Adds to `d` the token's part of the sums of segments that continue its own.
template <class T, class W>
PL_DEV float add_from_behind(const Conv<T, W>& a, const T* d_y, const typename Conv<T, W>::Range& in,
                             int64_t token, int64_t channel, float d) {
  const auto live = static_cast<int64_t>(step_value(a.step, a.sequences));
  for (int64_t s = in.segment + 1; s < live && a.parents[s] >= in.segment; ++s) {
    int64_t distance = in.end - token;
    for (int64_t up = a.parents[s]; up != in.segment; up = a.parents[up])
      distance += a.where.starts[up + 1] - a.where.starts[up];
    const auto of = a.at(s);
    for (int64_t u = of.begin; u < of.end && distance < a.taps; ++u, ++distance)
      d = gpu::fma(a.tap(channel, static_cast<int>(distance)), d_sum(a, d_y, of, u, channel), d);
  }
  return d;
}

template <class T, class W>
__global__ void __launch_bounds__(kConvThreads) conv_grad_x(Conv<T, W> a, const T* d_y, T* d_x) {
  const int64_t token = blockIdx.x, channel = own_channel();
  if (channel >= a.width) return;
  const auto in = a.sequence(token);
  float d = 0;
  for (int j = 0; j < a.taps && token + j < in.end; ++j)
    d = gpu::fma(a.tap(channel, j), d_sum(a, d_y, in, token + j, channel), d);
  if (a.parents != nullptr && in.segment >= 0 && token + a.taps > in.end)
    d = add_from_behind(a, d_y, in, token, channel, d);
  d_x[token * a.width + channel] = gpu::rounded<T>(d);
}

// A thread a tap of a channel, a block of the grid's first dimension kConvRowsPerBlock rows.
template <class T, class W>
__global__ void __launch_bounds__(kConvThreads)
    grad_weight_parts(Conv<T, W> a, const T* d_y, NormLive live, float* parts) {
  const int64_t at = own_channel();
  if (at >= a.width * a.taps) return;
  const int64_t channel = at / a.taps;
  const int back = a.taps - 1 - static_cast<int>(at % a.taps);
  const int64_t begin = blockIdx.x * kConvRowsPerBlock;
  const int64_t rows = live.rows();
  const int64_t end = begin + kConvRowsPerBlock < rows ? begin + kConvRowsPerBlock : rows;
  float sum = 0;
  for (int64_t token = begin; token < end; ++token) {
    const auto in = a.sequence(token);
    if (token >= in.end) continue;
    const int64_t row = a.row_before(in, token, back);
    if (row < 0) continue;
    const float x = gpu::to_float(a.x[row * a.width + channel]);
    sum = gpu::fma(d_sum(a, d_y, in, token, channel), x, sum);
  }
  parts[blockIdx.x * a.width * a.taps + at] = sum;
}

// The next tokens of one sequence, behind the rows of x that are kept; or of each sequence one.
template <class T, class W>
struct ConvOnwards {
  const T* x;
  const W* weight;
  T* y;
  T* kept;  // [taps - 1, D] of a sequence, the oldest first
  const double* step;
  StepValue live;
  int64_t tokens, width;
  int taps;
  bool apart;  // each row of x continues a sequence of its own

  // The part that a block of a sequence works on.
  [[nodiscard]] PL_DEV ConvOnwards of_sequence(int64_t sequence) const {
    ConvOnwards own = *this;
    if (!apart) return own;
    own.x += sequence * width;
    own.y += sequence * width;
    own.kept += sequence * (taps - 1) * width;
    own.tokens = 1;
    return own;
  }
};
template <class T, class W>
__global__ void __launch_bounds__(kConvThreads) onwards(ConvOnwards<T, W> all) {
  const int64_t channel = int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  if (channel >= all.width) return;
  const auto a = all.of_sequence(blockIdx.y);
  const auto rows = static_cast<int64_t>(step_value(a.step, a.live));
  const int64_t live = !a.apart ? rows : blockIdx.y < rows ? 1 : 0;
  const bool fresh = step_value(a.step, StepValue::kv_length) == 0.0;  // there is nothing before
  const int kept = a.taps - 1;
  gpu::require(rows >= 1 && rows <= all.tokens, "live tokens of short_conv_cached");
  // Row `at` of those that were kept and x behind them.
  const auto row = [&](int64_t at) {
    if (at >= kept) return a.x[(at - kept) * a.width + channel];
    return fresh ? gpu::rounded<T>(0.0F) : a.kept[at * a.width + channel];
  };
  for (int64_t token = 0; token < a.tokens; ++token) {
    float s = 0;
    for (int j = 0; j < a.taps && token < live; ++j)
      s = gpu::fma(gpu::to_float(a.weight[channel * a.taps + kept - j]), gpu::to_float(row(token + kept - j)),
                   s);
    a.y[token * a.width + channel] = gpu::rounded<T>(s * logistic(s));
  }
  if (live == 0) return;
  // Rows move towards the front: none is written before it is read.
  for (int r = 0; r < kept; ++r) a.kept[r * a.width + channel] = row(r + live);
}

// `at`: operand::short_conv, or that of its gradient.
template <class T, class W, class at>
Conv<T, W> operands_of(const GpuBinding& b) {
  const Tensor& x = b.input_tensor(at::x);
  return {.x = b.input<T>(at::x),
          .weight = b.input<W>(at::weight),
          .where = {b.input<int32_t>(at::seq_starts), x.shape[0]},
          .parents = b.input<int32_t>(at::parents),
          .step = b.input<double>(at::step),
          .sequences = live_sequences_of(b.op().axis),
          .width = x.shape[1],
          .taps = static_cast<int>(b.input_tensor(at::weight).shape.last())};
}

template <class T, class W, class G>
BoundCall make_grad(const GpuBinding& b) {
  using at = operand::short_conv_grad;
  const NormLive live{b.input<double>(at::step), b.op().axis, 1, b.op().attr_int("accumulate")};
  return [a = operands_of<T, W, at>(b), live, d_y = b.input<T>(at::d_y), d_x = b.output<T>(at::d_x),
          d_weight = b.output<G>(at::d_weight), parts = reinterpret_cast<float*>(b.scratch()),
          &stream = b.stream()] {
    const auto tokens = static_cast<unsigned>(a.where.tokens);
    if (d_x != nullptr)
      gpu::launch(stream, {tokens, gpu::blocks_of(a.width, kConvThreads)}, {kConvThreads}, conv_grad_x<T, W>,
                  a, d_y, d_x);
    if (d_weight == nullptr) return;
    const int64_t values = a.width * a.taps;
    const unsigned blocks = gpu::blocks_of(a.where.tokens, kConvRowsPerBlock);
    gpu::launch(stream, {blocks, gpu::blocks_of(values, kConvThreads)}, {kConvThreads},
                grad_weight_parts<T, W>, a, d_y, live, parts);
    gpu::launch(stream, {gpu::blocks_of(values, kNormThreads)}, {kNormThreads}, sum_parts<G>, parts,
                int64_t{blocks}, values, live, d_weight);
  };
}

}  // namespace

BoundCall bind_gpu_short_conv(const GpuBinding& b) {
  using at = operand::short_conv;
  return with_weight_types(
      b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, [&](auto t, auto w) -> BoundCall {
        using T = decltype(t);
        using W = decltype(w);
        return [a = operands_of<T, W, at>(b), y = b.output<T>(at::y), &stream = b.stream()] {
          const auto tokens = static_cast<unsigned>(a.where.tokens);
          gpu::launch(stream, {tokens, gpu::blocks_of(a.width, kConvThreads)}, {kConvThreads}, forward<T, W>,
                      a, y);
        };
      });
}

BoundCall bind_gpu_short_conv_cached(const GpuBinding& b) {
  using at = operand::short_conv_cached;
  return with_weight_types(
      b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, [&](auto t, auto w) -> BoundCall {
        using T = decltype(t);
        using W = decltype(w);
        const Tensor& x = b.input_tensor(at::x);
        const ConvOnwards<T, W> a{.x = b.input<T>(at::x),
                                  .weight = b.input<W>(at::weight),
                                  .y = b.output<T>(at::y),
                                  .kept = b.output<T>(at::rows),
                                  .step = b.input<double>(at::step),
                                  .live = live_tokens_of(b.op().axis),
                                  .tokens = x.shape[0],
                                  .width = x.shape[1],
                                  .taps = static_cast<int>(b.input_tensor(at::weight).shape.last()),
                                  .apart = continues_apart(b.op())};
        return [a, &stream = b.stream()] {
          const auto sequences = static_cast<unsigned>(a.apart ? a.tokens : 1);
          gpu::launch(stream, {gpu::blocks_of(a.width, kConvThreads), sequences}, {kConvThreads},
                      onwards<T, W>, a);
        };
      });
}

BoundCall bind_gpu_short_conv_grad(const GpuBinding& b) {
  using at = operand::short_conv_grad;
  const DType gradient = b.op().has_output(at::d_weight) ? b.output_tensor(at::d_weight).dtype : DType::f32;
  return with_weight_types(
      b, b.input_tensor(at::x).dtype, b.input_tensor(at::weight).dtype, [&](auto t, auto w) {
        return with_gpu_types(b, b.input_tensor(at::weight).dtype, gradient, [&](auto, auto g) {
          return make_grad<decltype(t), decltype(w), decltype(g)>(b);
        });
      });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
