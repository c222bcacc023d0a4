#include "ops/loss/word_scores.h"

#include <algorithm>

#include "ops/cpu_dispatch.h"
#include "ops/cpu_elements.h"
#include "ops/parallel_memory.h"

namespace plimsoll {
// Rows and words are few: sums are made in f64, in order.
BoundCall bind_word_scores(const CpuBinding& b) {
  using at = operand::word_scores;
  return with_number_type(b, b.input_tensor(at::x).dtype, [&](auto zero) -> BoundCall {
    using T = decltype(zero);
    return [x = b.input<T>(at::x), weight = b.input<T>(at::weight), step = b.input<double>(at::step),
            scores = b.output<T>(at::scores), rows = b.input_tensor(at::x).shape[0],
            hidden = b.input_tensor(at::x).shape[1], words = words_of(b.op()), axis = b.op().axis] {
      T* to = scores;
      for (int64_t row = 0; row < live_tokens(step, axis); ++row)
        for (const int32_t word : words) {
          double sum = 0;
          for (int64_t h = 0; h < hidden; ++h)
            sum += as_f64(x[row * hidden + h]) * as_f64(weight[word * hidden + h]);
          set_rounded(*to++, sum);
        }
      std::fill(to, scores + rows * std::ssize(words), T{});
    };
  });
}

namespace {

template <class T, class G>
struct WordGradients {
  using at = operand::word_scores_grad;

  explicit WordGradients(const CpuBinding& b)
      : x(b.input<T>(at::x)),
        weight(b.input<T>(at::weight)),
        d_scores(b.input<T>(at::d_scores)),
        d_x(b.output<T>(at::d_x)),
        d_weight(b.output<G>(at::d_weight)),
        rows(b.input_tensor(at::x).shape[0]),
        hidden(b.input_tensor(at::x).shape[1]),
        words(words_of(b.op())) {}

  void to_rows(int64_t live) const {
    for (int64_t row = 0; row < live; ++row)
      for (int64_t h = 0; h < hidden; ++h) {
        double sum = 0;
        for (size_t c = 0; c < words.size(); ++c)
          sum += as_f64(slope(row, c)) * as_f64(weight[words[c] * hidden + h]);
        set_rounded(d_x[row * hidden + h], sum);
      }
    std::fill(d_x + live * hidden, d_x + rows * hidden, T{});
  }
  void to_weight(int64_t live) const {
    for (size_t c = 0; c < words.size(); ++c)
      for (int64_t h = 0; h < hidden; ++h) {
        G& to = d_weight[words[c] * hidden + h];
        double sum = as_f64(to);
        for (int64_t row = 0; row < live; ++row) sum += as_f64(slope(row, c)) * as_f64(x[row * hidden + h]);
        set_rounded(to, sum);
      }
  }
  [[nodiscard]] T slope(int64_t row, size_t c) const {
    return d_scores[row * std::ssize(words) + static_cast<int64_t>(c)];
  }

  const T* x;
  const T* weight;
  const T* d_scores;
  T* d_x;
  G* d_weight;
  int64_t rows, hidden;
  std::vector<int32_t> words;
};

}  // namespace

BoundCall bind_word_scores_grad(const CpuBinding& b) {
  using at = operand::word_scores_grad;
  const bool trains = b.op().has_output(at::d_weight);
  const DType gradient = trains ? b.output_tensor(at::d_weight).dtype : DType::f32;
  const auto make = [&](auto t, auto g) -> BoundCall {
    const WordGradients<decltype(t), decltype(g)> gradients(b);
    return [gradients, trains, step = b.input<double>(at::step), threads = b.settings().threads,
            accumulate = b.op().attr_int("accumulate"),
            bytes = trains ? b.output_tensor(at::d_weight).bytes() : 0, axis = b.op().axis] {
      const int64_t live = live_tokens(step, axis);
      if (gradients.d_x != nullptr) gradients.to_rows(live);
      if (!trains) return;
      if (overwrites(accumulate, step)) parallel_clear(gradients.d_weight, bytes, threads);
      gradients.to_weight(live);
    };
  };
  if (b.input_tensor(at::x).dtype == DType::f16)
    return gradient == DType::f16 ? make(F16{}, F16{}) : make(F16{}, float{});
  return with_gradient_type(b, b.input_tensor(at::x).dtype, gradient, make);
}

}  // namespace plimsoll
