// word_scores and its gradient. Rows and words are few: a thread makes each sum in f64, in the CPU's order.
#include "ops/gpu_rows.h"
#include "ops/gpu_step.h"
#include "ops/loss/word_scores.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

constexpr unsigned kWordScoresThreads = 128;
constexpr size_t kMostWords = 256;

struct Words {
  int32_t ids[kMostWords] = {};
  int32_t count = 0;
};

template <class T>
PL_DEV double as_f64(T x) {
  return static_cast<double>(gpu::to_float(x));
}

// A thread for each score.
template <class T>
__global__ void __launch_bounds__(kWordScoresThreads)
    scores_of(const T* x, const T* weight, const double* step, AxisId axis, Words words, int64_t hidden,
              T* scores, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * kWordScoresThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t row = at / words.count;
  double sum = 0;
  if (row < live_tokens(step, axis)) {
    const T* const of_word = weight + words.ids[at % words.count] * hidden;
    for (int64_t h = 0; h < hidden; ++h) sum += as_f64(x[row * hidden + h]) * as_f64(of_word[h]);
  }
  scores[at] = gpu::rounded<T>(static_cast<float>(sum));
}

template <class T>
__global__ void __launch_bounds__(kWordScoresThreads)
    grad_rows(const T* weight, const T* d_scores, const double* step, AxisId axis, Words words,
              int64_t hidden, T* d_x, int64_t count) {
  const int64_t at = int64_t{blockIdx.x} * kWordScoresThreads + threadIdx.x;
  if (at >= count) return;
  const int64_t row = at / hidden;
  double sum = 0;
  for (int32_t c = 0; c < words.count && row < live_tokens(step, axis); ++c)
    sum += as_f64(d_scores[row * words.count + c]) * as_f64(weight[words.ids[c] * hidden + at % hidden]);
  d_x[at] = gpu::rounded<T>(static_cast<float>(sum));
}

// A thread takes a column of all words, in order, as a word may stand for two classes.
template <class T, class G>
__global__ void __launch_bounds__(kWordScoresThreads)
    grad_weight(const T* x, const T* d_scores, const double* step, AxisId axis, Words words, int64_t hidden,
                G* d_weight) {
  const int64_t h = int64_t{blockIdx.x} * kWordScoresThreads + threadIdx.x;
  if (h >= hidden) return;
  const int64_t live = live_tokens(step, axis);
  for (int32_t c = 0; c < words.count; ++c) {
    G& to = d_weight[words.ids[c] * hidden + h];
    double sum = as_f64(to);
    for (int64_t row = 0; row < live; ++row)
      sum += as_f64(d_scores[row * words.count + c]) * as_f64(x[row * hidden + h]);
    to = gpu::rounded<G>(static_cast<float>(sum));
  }
}

// The whole gradient, where this is its first writer.
template <class W>
__global__ void __launch_bounds__(kWordScoresThreads)
    clear_first(W* to, int64_t count, Accumulation accumulation) {
  const int64_t at = int64_t{blockIdx.x} * kWordScoresThreads + threadIdx.x;
  if (at < count && !accumulation.adds()) to[at] = W{};
}

Words words_on_gpu(const GpuBinding& b) {
  const std::vector<int32_t> all = words_of(b.op());
  if (all.size() > kMostWords)
    refuse_on_gpu(b, "more than " + std::to_string(kMostWords) + " classes by words");
  Words words;
  for (const int32_t id : all) words.ids[words.count++] = id;
  return words;
}

template <class T, class G>
BoundCall make_grad(const GpuBinding& b) {
  using at = operand::word_scores_grad;
  const int64_t rows = b.input_tensor(at::x).shape[0], hidden = b.input_tensor(at::x).shape[1];
  return [x = b.input<T>(at::x), weight = b.input<T>(at::weight), d_scores = b.input<T>(at::d_scores),
          step = b.input<double>(at::step), axis = b.op().axis, words = words_on_gpu(b), rows, hidden,
          d_x = b.output<T>(at::d_x), d_weight = b.output<G>(at::d_weight),
          all = b.op().has_output(at::d_weight) ? b.output_tensor(at::d_weight).shape.elements() : 0,
          accumulate = b.op().attr_int("accumulate"), &stream = b.stream()] {
    if (d_x != nullptr)
      gpu::launch(stream, {gpu::blocks_of(rows * hidden, kWordScoresThreads)}, {kWordScoresThreads},
                  grad_rows<T>, weight, d_scores, step, axis, words, hidden, d_x, rows * hidden);
    if (d_weight == nullptr) return;
    gpu::launch(stream, {gpu::blocks_of(all, kWordScoresThreads)}, {kWordScoresThreads}, clear_first<G>,
                d_weight, all, Accumulation{accumulate, step});
    gpu::launch(stream, {gpu::blocks_of(hidden, kWordScoresThreads)}, {kWordScoresThreads}, grad_weight<T, G>,
                x, d_scores, step, axis, words, hidden, d_weight);
  };
}

}  // namespace

BoundCall bind_gpu_word_scores(const GpuBinding& b) {
  using at = operand::word_scores;
  return with_gpu_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [x = b.input<T>(at::x), weight = b.input<T>(at::weight), step = b.input<double>(at::step),
            axis = b.op().axis, words = words_on_gpu(b), hidden = b.input_tensor(at::x).shape[1],
            scores = b.output<T>(at::scores), count = b.output_tensor(at::scores).shape.elements(),
            &stream = b.stream()] {
      gpu::launch(stream, {gpu::blocks_of(count, kWordScoresThreads)}, {kWordScoresThreads}, scores_of<T>, x,
                  weight, step, axis, words, hidden, scores, count);
    };
  });
}

BoundCall bind_gpu_word_scores_grad(const GpuBinding& b) {
  using at = operand::word_scores_grad;
  const DType gradient = b.op().has_output(at::d_weight) ? b.output_tensor(at::d_weight).dtype : DType::f32;
  return with_gpu_types(b, b.input_tensor(at::x).dtype, gradient,
                        [&](auto t, auto g) { return make_grad<decltype(t), decltype(g)>(b); });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
