#include "ops/loss/cpu_head_rows.h"

namespace plimsoll {
namespace {

int32_t target(int32_t label) { return label; }

// One call of the op for element type T.
template <class T>
class HeadLoss {
  using at = operand::linear_cross_entropy;  // and those of its gradient

 public:
  explicit HeadLoss(const CpuBinding& b)
      : rows_(b),
        weights_(b.input<float>(at::label_weights)),
        step_(b.input<double>(at::step)),
        loss_(b.output<double>(at::loss)) {}

  // Losses are summed chunk by chunk, each in the order of its rows.
  void operator()() const {
    double sum = 0, targets = 0;
    const auto scale = static_cast<float>(step_value(step_, StepValue::loss_scale));
    rows_.run(
        step_, scale,
        [&](const int32_t* labels, int64_t count) {
          for (int64_t i = 0; rows_.scales() != nullptr && i < count; ++i)
            rows_.scales()[i] = scale * weights_[labels[i]];
        },
        [&](const int32_t* labels, int64_t count, const double* losses) {
          double of_chunk = 0;
          for (int64_t i = 0; i < count; ++i) {
            const double weight = weights_ == nullptr ? 1.0 : static_cast<double>(weights_[labels[i]]);
            of_chunk += weight * losses[i];
            targets += weight;
          }
          sum += of_chunk;
        });
    const bool first = step_value(step_, StepValue::first_micro_step) == 1.0;
    loss_[0] = (first ? 0.0 : loss_[0]) + sum;
    loss_[1] = (first ? 0.0 : loss_[1]) + targets;
  }

 private:
  HeadRows<T, target> rows_;
  const float* weights_;  // rows that each label counts for; null: one
  const double* step_;
  double* loss_;
};

BoundCall bind_either(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(HeadInputs::x).dtype,
                           [&](auto zero) -> BoundCall { return HeadLoss<decltype(zero)>(b); });
}

}  // namespace

BoundCall bind_linear_cross_entropy(const CpuBinding& b) { return bind_either(b); }
BoundCall bind_linear_cross_entropy_grad(const CpuBinding& b) { return bind_either(b); }

}  // namespace plimsoll
