#include "ops/cpu_head_rows.h"

namespace plimsoll {
namespace {

int32_t target(int32_t label) { return label; }

// One call of the op for element type T.
template <class T>
class HeadLoss {
 public:
  explicit HeadLoss(const CpuBinding& b) : rows_(b), step_(b.input<double>(3)), loss_(b.output<double>(0)) {}

  // Losses are summed chunk by chunk, each in the order of its rows.
  void operator()() const {
    double sum = 0;
    const int64_t targets = rows_.run(
        step_, static_cast<float>(step_value(step_, StepValue::loss_scale)), [](const int32_t*, int64_t) {},
        [&](const int32_t*, int64_t count, const double* losses) {
          double of_chunk = 0;
          for (int64_t i = 0; i < count; ++i) of_chunk += losses[i];
          sum += of_chunk;
        });
    const bool first = step_value(step_, StepValue::first_micro_step) == 1.0;
    loss_[0] = (first ? 0.0 : loss_[0]) + sum;
    loss_[1] = (first ? 0.0 : loss_[1]) + static_cast<double>(targets);
  }

 private:
  HeadRows<T, target> rows_;
  const double* step_;
  double* loss_;
};

BoundCall bind_either(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(0).dtype,
                           [&](auto zero) -> BoundCall { return HeadLoss<decltype(zero)>(b); });
}

}  // namespace

BoundCall bind_linear_cross_entropy(const CpuBinding& b) { return bind_either(b); }
BoundCall bind_linear_cross_entropy_grad(const CpuBinding& b) { return bind_either(b); }

}  // namespace plimsoll
