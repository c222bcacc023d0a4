// The rows of the output head that carry a label, taken in chunks whose logits exist in scratch only: what
// linear_cross_entropy and linear_log_prob share.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "cpu/matmul.h"
#include "ops/cpu_dispatch.h"
#include "ops/cross_entropy_kernels.h"
#include "ops/linear_cross_entropy_layout.h"
#include "ops/parallel_memory.h"

namespace plimsoll {

// For element type T; x, weight and labels are inputs 0 to 2. With neither d_x nor d_weight it computes
// losses only. `TokenOf(label)`: the token that a label asks for, negative where it asks for none.
template <class T, int32_t (*TokenOf)(int32_t label)>
class HeadRows {
 public:
  explicit HeadRows(const CpuBinding& b)
      : x_(b.input<T>(0)),
        weight_(b.input<T>(1)),
        labels_(b.input<int32_t>(2)),
        d_x_(b.output<T>(head_outputs(b.op()).d_x)),
        d_weight_(b.output(head_outputs(b.op()).d_weight)),
        tokens_(b.input_tensor(0).shape[0]),
        hidden_(b.input_tensor(0).shape[1]),
        vocab_(b.input_tensor(1).shape[0]),
        d_weight_bytes_(d_weight_ == nullptr ? 0 : b.output_tensor(head_outputs(b.op()).d_weight).bytes()),
        overwriter_(d_weight_ == nullptr ? 1 : b.op().attr_int("accumulate")),
        threads_(b.settings().threads),
        kernel_(pick<CrossEntropyRows<T>>(b.settings().isa, avx2::cross_entropy_rows,
                                          avx512::cross_entropy_rows, avx512_bf16::cross_entropy_rows)) {
    place_parts(b);
    const CrossEntropyProducts products = cross_entropy_products(b.graph(), b.op());
    const auto make = [&](const MatmulShape& shape) {
      return std::shared_ptr<const Matmul>(Matmul::create(shape, b.settings().isa, threads_));
    };
    logits_product_ = make(products.logits);
    if (products.d_x) d_x_product_ = make(*products.d_x);
    if (products.d_w) d_weight_product_ = make(*products.d_w);
  }

  // Every labelled row once, in order: `before` sees a chunk's row numbers ahead of its products and may fill
  // scales(), `after` sees them with their losses. Gradients are times `scale`, or times each row's own of
  // scales(). Rows without a label have none. `step` may be nullptr where no weight's gradient is wanted.
  // Returns how many rows there were.
  template <class Before, class After>
  int64_t run(const double* step, float scale, Before before, After after) const {
    const int64_t labelled = find_rows();
    if (d_x_ != nullptr) parallel_clear(d_x_, tokens_ * hidden_ * int64_t{sizeof(T)}, threads_);
    bool overwrite = d_weight_ != nullptr && overwrites(overwriter_, step);
    if (overwrite && labelled == 0) parallel_clear(d_weight_, d_weight_bytes_, threads_);
    for (int64_t at = 0; at < labelled; at += chunk_) {
      const int64_t count = std::min(chunk_, labelled - at);
      before(rows_ + at, count);
      run_chunk(rows_ + at, count, scale, overwrite);
      after(rows_ + at, count, losses_);
      overwrite = false;
    }
    return labelled;
  }
  [[nodiscard]] float* scales() const { return scales_; }

 private:
  void place_parts(const CpuBinding& b) {
    const CrossEntropyLayout layout = cross_entropy_layout(b.graph(), b.op());
    std::byte* const base = b.scratch();
    chunk_ = layout.chunk;
    rows_ = reinterpret_cast<int32_t*>(base + layout.rows);
    chunk_labels_ = reinterpret_cast<int32_t*>(base + layout.labels);
    losses_ = reinterpret_cast<double*>(base + layout.losses);
    if (layout.x > layout.scales) scales_ = reinterpret_cast<float*>(base + layout.scales);
    chunk_x_ = reinterpret_cast<T*>(base + layout.x);
    logits_ = reinterpret_cast<T*>(base + layout.logits);
    chunk_d_x_ = reinterpret_cast<T*>(base + layout.d_x);
    matmul_scratch_ = base + layout.matmul;
  }

  // Writes the numbers of the rows with a label, in order, and returns how many there are.
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

  void run_chunk(const int32_t* rows, int64_t count, float scale, bool overwrite) const {
    gather(rows, count);
    logits_product_->run(
        {.a = chunk_x_, .b = weight_, .c = logits_, .live = count, .scratch = matmul_scratch_});
    kernel_({.logits = logits_,
             .labels = chunk_labels_,
             .losses = losses_,
             .rows = count,
             .vocab = vocab_,
             .gradient = d_x_ != nullptr || d_weight_ != nullptr,
             .scale = scale,
             .scales = scales_,
             .threads = threads_});
    if (d_x_ != nullptr) run_d_x(rows, count);
    if (d_weight_ != nullptr) run_d_weight(count, overwrite);
  }

  void gather(const int32_t* rows, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      chunk_labels_[i] = TokenOf(labels_[rows[i]]);
      std::memcpy(chunk_x_ + i * hidden_, x_ + rows[i] * hidden_, row_bytes());
    }
  }

  void run_d_x(const int32_t* rows, int64_t count) const {
    d_x_product_->run(
        {.a = logits_, .b = weight_, .c = chunk_d_x_, .live = count, .scratch = matmul_scratch_});
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(d_x_ + rows[i] * hidden_, chunk_d_x_ + i * hidden_, row_bytes());
  }

  void run_d_weight(int64_t count, bool overwrite) const {
    d_weight_product_->run({.a = logits_,
                            .b = chunk_x_,
                            .c = d_weight_,
                            .live = count,
                            .accumulate = !overwrite,
                            .scratch = matmul_scratch_});
  }

  [[nodiscard]] size_t row_bytes() const { return static_cast<size_t>(hidden_) * sizeof(T); }

  const T* x_;
  const T* weight_;
  const int32_t* labels_;
  T* d_x_;
  void* d_weight_;
  int64_t tokens_, hidden_, vocab_, d_weight_bytes_;
  int64_t overwriter_;  // 0: this op is the gradient's first writer
  int threads_;
  Kernel<CrossEntropyRows<T>> kernel_;
  std::shared_ptr<const Matmul> logits_product_, d_x_product_, d_weight_product_;
  // Parts of the workspace.
  int64_t chunk_ = 0;
  int32_t* rows_ = nullptr;
  int32_t* chunk_labels_ = nullptr;
  double* losses_ = nullptr;
  float* scales_ = nullptr;
  T* chunk_x_ = nullptr;
  T* logits_ = nullptr;
  T* chunk_d_x_ = nullptr;
  std::byte* matmul_scratch_ = nullptr;
};

}  // namespace plimsoll
