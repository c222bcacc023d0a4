// The rows of the output head that carry a label, taken in chunks whose logits exist in scratch only: what
// linear_cross_entropy and linear_log_prob share.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "cpu/matmul.h"
#include "ops/cpu_dispatch.h"
#include "ops/loss/cross_entropy_kernels.h"
#include "ops/loss/linear_cross_entropy_layout.h"
#include "ops/parallel_memory.h"
#include "ops/pointwise/elementwise_kernels.h"

namespace plimsoll {

// For element type T.
// Without gradients it computes losses only. `TokenOf(label)`: the token that a label asks for, negative
// where it asks for none.
template <class T, int32_t (*TokenOf)(int32_t label)>
class HeadRows {
 public:
  explicit HeadRows(const CpuBinding& b)
      : x_(b.input<T>(HeadInputs::x)),
        weight_(b.input<T>(HeadInputs::weight)),
        bias_(b.input<T>(head_operands(b.op()).bias)),
        labels_(b.input<int32_t>(HeadInputs::labels)),
        label_rows_(b.input<int32_t>(head_operands(b.op()).label_rows)),
        d_x_(b.output<T>(head_operands(b.op()).d_x)),
        tokens_(b.input_tensor(HeadInputs::x).shape[0]),
        hidden_(b.input_tensor(HeadInputs::x).shape[1]),
        vocab_(b.input_tensor(HeadInputs::weight).shape[0]),
        threads_(b.settings().threads),
        map_(logit_map(b.op())),
        kernel_(PLIMSOLL_KERNEL(b, cross_entropy_rows, CrossEntropyRows<T>)),
        add_(PLIMSOLL_KERNEL(b, add, Add<T>)) {
    place_parts(b);
    const CrossEntropyProducts products = cross_entropy_products(b.graph(), b.op());
    const auto make = [&](const MatmulShape& shape) {
      return std::shared_ptr<const Matmul>(Matmul::create(shape, b.settings().isa, threads_));
    };
    logits_product_ = make(products.logits);
    if (products.d_x) d_x_product_ = make(*products.d_x);
    const auto weight_gradient = [&](const std::optional<MatmulShape>& shape, size_t output) {
      if (!shape) return WeightGradient{};
      return WeightGradient{b.output(output), b.output_tensor(output).bytes(), make(*shape)};
    };
    const HeadOperands at = head_operands(b.op());
    d_weight_ = weight_gradient(products.d_w, at.d_weight);
    if (b.op().has_output(at.d_bias)) {
      const Tensor& gradient = b.output_tensor(at.d_bias);
      d_bias_ = {b.output(at.d_bias), gradient.bytes(), nullptr};
      add_bias_ = gradient.dtype == DType::f32 ? add_bias<float>(b, at.d_bias) : add_bias<T>(b, at.d_bias);
    }
    if (sums_gradients() || products.d_b) overwriter_ = b.op().attr_int("accumulate");
    if (d_bias_.to != nullptr) bias_overwriter_ = bias_accumulation(b.op());
    if (!products.low_rank) return;
    adapter_ = {.t = b.input<T>(at.t),
                .b = b.input<T>(at.b),
                .d_t = b.output<T>(at.d_t),
                .rank = b.input_tensor(at.t).shape[1],
                .scale = static_cast<float>(b.op().attr_float("scale")),
                .product = make(*products.low_rank),
                .d_t_product = products.d_t ? make(*products.d_t) : nullptr,
                .d_b = weight_gradient(products.d_b, at.d_b)};
  }

  // Every label once, in order: `before` sees the numbers of a chunk's labels ahead of its products and may
  // fill scales(), `after` sees them with their losses. Gradients are times `scale`, or times each row's own
  // of scales(). Rows without a label have none. `step` may be nullptr where no weight's gradient is wanted.
  // Returns how many labels there were.
  template <class Before, class After>
  int64_t run(const double* step, float scale, Before before, After after) const {
    const int64_t labelled = find_rows();
    if (d_x_ != nullptr) parallel_clear(d_x_, tokens_ * hidden_ * int64_t{sizeof(T)}, threads_);
    Overwrite overwrite;
    if (sums_gradients()) overwrite = {overwrites(overwriter_, step), overwrites(bias_overwriter_, step)};
    if (adapter_.d_t != nullptr)
      parallel_clear(adapter_.d_t, tokens_ * adapter_.rank * int64_t{sizeof(T)}, threads_);
    if (labelled == 0) clear_gradients(overwrite);
    for (int64_t at = 0; at < labelled; at += chunk_) {
      const int64_t count = std::min(chunk_, labelled - at);
      before(rows_ + at, count);
      run_chunk(rows_ + at, count, scale, overwrite);
      after(rows_ + at, count, losses_);
      overwrite = {};
    }
    return labelled;
  }
  [[nodiscard]] float* scales() const { return scales_; }

 private:
  // The gradients that a chunk overwrites.
  struct Overwrite {
    bool weights = false, bias = false;
  };
  struct WeightGradient {
    void* to = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<const Matmul> product;
  };
  struct Adapter {
    const T* t = nullptr;
    const T* b = nullptr;
    T* d_t = nullptr;
    int64_t rank = 0;
    float scale = 1.0F;
    std::shared_ptr<const Matmul> product, d_t_product;
    WeightGradient d_b;
  };

  // Adds the sums of a chunk's columns to the bias's gradient, or puts them in its place.
  using AddBias = std::function<void(int64_t rows, bool accumulate)>;
  template <class G>
  AddBias add_bias(const CpuBinding& b, size_t output) const {
    using Sums = ColumnSums<T, G>;
    const Sums sums{.x = logits_,
                    .columns = vocab_,
                    .partials = column_sums_,
                    .sums = b.output<G>(output),
                    .threads = threads_};
    return [sums, kernel = PLIMSOLL_KERNEL(b, column_sums, Sums)](int64_t rows, bool accumulate) {
      Sums now = sums;
      now.rows = rows;
      now.accumulate = accumulate;
      kernel(now);
    };
  }

  [[nodiscard]] bool sums_gradients() const {
    return d_weight_.to != nullptr || adapter_.d_b.to != nullptr || d_bias_.to != nullptr;
  }
  void clear_gradients(Overwrite overwrite) const {
    for (const WeightGradient* gradient : {&d_weight_, &adapter_.d_b, &d_bias_})
      if (gradient->to != nullptr && (gradient == &d_bias_ ? overwrite.bias : overwrite.weights))
        parallel_clear(gradient->to, gradient->bytes, threads_);
  }

  void place_parts(const CpuBinding& b) {
    const CrossEntropyLayout layout = cross_entropy_layout(b.graph(), b.op());
    std::byte* const base = b.scratch();
    chunk_ = layout.chunk;
    rows_ = reinterpret_cast<int32_t*>(base + layout.rows);
    chunk_labels_ = reinterpret_cast<int32_t*>(base + layout.labels);
    losses_ = reinterpret_cast<double*>(base + layout.losses);
    if (layout.sums > layout.scales) scales_ = reinterpret_cast<float*>(base + layout.scales);
    chunk_x_ = reinterpret_cast<T*>(base + layout.x);
    logits_ = reinterpret_cast<T*>(base + layout.logits);
    chunk_d_x_ = reinterpret_cast<T*>(base + layout.d_x);
    chunk_t_ = reinterpret_cast<T*>(base + layout.t);
    chunk_d_t_ = reinterpret_cast<T*>(base + layout.d_t);
    column_sums_ = reinterpret_cast<float*>(base + layout.columns);
    matmul_scratch_ = base + layout.matmul;
  }

  // Writes the numbers of the labels that ask for a token, in order, and returns how many there are.
  int64_t find_rows() const {
    int64_t count = 0;
    for (int64_t t = 0; t < tokens_; ++t) {
      const int32_t token = TokenOf(labels_[t]);
      if (token < 0) continue;
      check_internal(token < vocab_, "the output head: a label is outside the vocabulary");
      rows_[count++] = static_cast<int32_t>(t);
    }
    return count;
  }

  void run_chunk(const int32_t* rows, int64_t count, float scale, Overwrite overwrite) const {
    gather(rows, count);
    logits_product_->run({.a = chunk_x_,
                          .b = weight_,
                          .c = logits_,
                          .live = count,
                          .bias = bias_,
                          .scratch = matmul_scratch_});
    if (adapter_.product != nullptr) add_low_rank(rows, count);
    kernel_({.logits = logits_,
             .labels = chunk_labels_,
             .losses = losses_,
             .rows = count,
             .vocab = vocab_,
             .gradient = d_x_ != nullptr || adapter_.d_t != nullptr || sums_gradients(),
             .scale = scale,
             .scales = scales_,
             .map = map_,
             .threads = threads_});
    if (d_x_ != nullptr) run_d_x(rows, count);
    if (adapter_.d_t != nullptr) run_d_t(rows, count);
    if (d_weight_.to != nullptr) run_d_weight(d_weight_, chunk_x_, 1.0F, count, overwrite.weights);
    if (adapter_.d_b.to != nullptr)
      run_d_weight(adapter_.d_b, chunk_t_, adapter_.scale, count, overwrite.weights);
    if (d_bias_.to != nullptr) add_bias_(count, !overwrite.bias);
  }

  void gather(const int32_t* rows, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      chunk_labels_[i] = TokenOf(labels_[rows[i]]);
      std::memcpy(chunk_x_ + i * hidden_, x_ + row_of(rows[i]) * hidden_, row_bytes());
    }
  }

  void run_d_x(const int32_t* rows, int64_t count) const {
    d_x_product_->run(
        {.a = logits_, .b = weight_, .c = chunk_d_x_, .live = count, .scratch = matmul_scratch_});
    to_rows(rows, count, chunk_d_x_, hidden_, d_x_);
  }

  void add_low_rank(const int32_t* rows, int64_t count) const {
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(chunk_t_ + i * adapter_.rank, adapter_.t + row_of(rows[i]) * adapter_.rank, rank_bytes());
    adapter_.product->run({.a = chunk_t_,
                           .b = adapter_.b,
                           .c = logits_,
                           .live = count,
                           .accumulate = true,
                           .alpha = adapter_.scale,
                           .scratch = matmul_scratch_});
  }

  void run_d_t(const int32_t* rows, int64_t count) const {
    adapter_.d_t_product->run({.a = logits_,
                               .b = adapter_.b,
                               .c = chunk_d_t_,
                               .live = count,
                               .alpha = adapter_.scale,
                               .scratch = matmul_scratch_});
    to_rows(rows, count, chunk_d_t_, adapter_.rank, adapter_.d_t);
  }

  // Adds scale * d_logits^T x; `x` has the chunk's rows.
  void run_d_weight(const WeightGradient& gradient, const T* x, float scale, int64_t count,
                    bool overwrite) const {
    gradient.product->run({.a = logits_,
                           .b = x,
                           .c = gradient.to,
                           .live = count,
                           .accumulate = !overwrite,
                           .alpha = scale,
                           .scratch = matmul_scratch_});
  }

  // The row of x that a label asks.
  [[nodiscard]] int64_t row_of(int32_t label) const {
    return label_rows_ == nullptr ? label : label_rows_[label];
  }
  // Gradients of a chunk to the rows that they are of; they add up where several labels ask the same one.
  void to_rows(const int32_t* labels, int64_t count, const T* from, int64_t width, T* to) const {
    for (int64_t i = 0; i < count; ++i, from += width) {
      T* const row = to + row_of(labels[i]) * width;
      if (label_rows_ == nullptr)
        std::memcpy(row, from, static_cast<size_t>(width) * sizeof(T));
      else
        add_({row, from, row, width, 1});
    }
  }

  [[nodiscard]] size_t row_bytes() const { return static_cast<size_t>(hidden_) * sizeof(T); }
  [[nodiscard]] size_t rank_bytes() const { return static_cast<size_t>(adapter_.rank) * sizeof(T); }

  const T* x_;
  const T* weight_;
  const T* bias_;  // null: there is none
  const int32_t* labels_;
  const int32_t* label_rows_;  // null: each asks its own
  T* d_x_;
  WeightGradient d_weight_;
  WeightGradient d_bias_;  // by add_bias_, not by a product
  AddBias add_bias_;
  Adapter adapter_;  // without a product: there is none
  int64_t tokens_, hidden_, vocab_;
  int64_t overwriter_ = 1;  // 0: this op is the gradients' first writer
  int64_t bias_overwriter_ = 1;
  int threads_;
  LogitMap map_;
  Kernel<CrossEntropyRows<T>> kernel_;
  Kernel<Add<T>> add_;
  std::shared_ptr<const Matmul> logits_product_, d_x_product_;
  // Parts of the workspace.
  int64_t chunk_ = 0;
  int32_t* rows_ = nullptr;
  int32_t* chunk_labels_ = nullptr;
  double* losses_ = nullptr;
  float* scales_ = nullptr;
  T* chunk_x_ = nullptr;
  T* logits_ = nullptr;
  T* chunk_d_x_ = nullptr;
  T* chunk_t_ = nullptr;
  T* chunk_d_t_ = nullptr;
  float* column_sums_ = nullptr;
  std::byte* matmul_scratch_ = nullptr;
};

}  // namespace plimsoll
