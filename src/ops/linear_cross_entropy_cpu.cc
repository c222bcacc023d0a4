#include <algorithm>
#include <cstring>
#include <memory>

#include "cpu/matmul.h"
#include "ops/cpu_dispatch.h"
#include "ops/cross_entropy_kernels.h"
#include "ops/linear_cross_entropy_layout.h"
#include "ops/parallel_memory.h"

namespace plimsoll {
namespace {

// One call of the op for element type T. With neither d_x nor d_weight it computes the loss only.
template <class T>
class HeadLoss {
 public:
  explicit HeadLoss(const CpuBinding& b)
      : x_(b.input<T>(0)),
        weight_(b.input<T>(1)),
        labels_(b.input<int32_t>(2)),
        step_(b.input<double>(3)),
        loss_(b.output<double>(0)),
        d_x_(b.output<T>(1)),
        d_weight_(b.output(2)),
        tokens_(b.input_tensor(0).shape[0]),
        hidden_(b.input_tensor(0).shape[1]),
        vocab_(b.input_tensor(1).shape[0]),
        d_weight_bytes_(b.op().has_output(2) ? b.output_tensor(2).bytes() : 0),
        overwriter_(b.op().has_output(2) ? b.op().attr_int("accumulate") : 1),
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

  void operator()() const {
    const int64_t targets = find_targets();
    if (d_x_ != nullptr) parallel_clear(d_x_, tokens_ * hidden_ * int64_t{sizeof(T)}, threads_);
    bool overwrite = overwrites(overwriter_, step_);
    if (overwrite && targets == 0) parallel_clear(d_weight_, d_weight_bytes_, threads_);
    double sum = 0;
    for (int64_t at = 0; at < targets; at += chunk_) {
      sum += run_chunk(rows_ + at, std::min(chunk_, targets - at), overwrite);
      overwrite = false;
    }
    const bool first = step_value(step_, StepValue::first_micro_step) == 1.0;
    loss_[0] = (first ? 0.0 : loss_[0]) + sum;
    loss_[1] = (first ? 0.0 : loss_[1]) + static_cast<double>(targets);
  }

 private:
  void place_parts(const CpuBinding& b) {
    const CrossEntropyLayout layout = cross_entropy_layout(b.graph(), b.op());
    std::byte* const base = b.scratch();
    chunk_ = layout.chunk;
    rows_ = reinterpret_cast<int32_t*>(base + layout.rows);
    chunk_labels_ = reinterpret_cast<int32_t*>(base + layout.labels);
    losses_ = reinterpret_cast<double*>(base + layout.losses);
    chunk_x_ = reinterpret_cast<T*>(base + layout.x);
    logits_ = reinterpret_cast<T*>(base + layout.logits);
    chunk_d_x_ = reinterpret_cast<T*>(base + layout.d_x);
    matmul_scratch_ = base + layout.matmul;
  }

  // Writes the numbers of the rows with a target, in order, and returns how many there are.
  int64_t find_targets() const {
    int64_t count = 0;
    for (int64_t t = 0; t < tokens_; ++t) {
      if (labels_[t] < 0) continue;
      check_internal(labels_[t] < vocab_, "linear_cross_entropy: a label is outside the vocabulary");
      rows_[count++] = static_cast<int32_t>(t);
    }
    return count;
  }

  // Loss of one chunk of rows, summed in the order of the rows; adds its gradients.
  double run_chunk(const int32_t* rows, int64_t count, bool overwrite) const {
    gather(rows, count);
    logits_product_->run(
        {.a = chunk_x_, .b = weight_, .c = logits_, .live = count, .scratch = matmul_scratch_});
    kernel_({.logits = logits_,
             .labels = chunk_labels_,
             .losses = losses_,
             .rows = count,
             .vocab = vocab_,
             .gradient = d_x_ != nullptr || d_weight_ != nullptr,
             .scale = static_cast<float>(step_value(step_, StepValue::loss_scale)),
             .threads = threads_});
    if (d_x_ != nullptr) run_d_x(rows, count);
    if (d_weight_ != nullptr) run_d_weight(count, overwrite);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += losses_[i];
    return sum;
  }

  void gather(const int32_t* rows, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      chunk_labels_[i] = labels_[rows[i]];
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
  const double* step_;
  double* loss_;
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
  T* chunk_x_ = nullptr;
  T* logits_ = nullptr;
  T* chunk_d_x_ = nullptr;
  std::byte* matmul_scratch_ = nullptr;
};

BoundCall bind_either(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype,
                           [&](auto zero) -> BoundCall { return HeadLoss<decltype(zero)>(b); });
}

}  // namespace

BoundCall bind_linear_cross_entropy(const CpuBinding& b) { return bind_either(b); }
BoundCall bind_linear_cross_entropy_grad(const CpuBinding& b) { return bind_either(b); }

}  // namespace plimsoll
