#include "ops/loss/linear_log_prob.h"

#include "ops/loss/cpu_head_rows.h"

namespace plimsoll {
namespace {

int32_t asked_token(int32_t label) { return label <= kPromptLabel ? kPromptLabel - label : label; }

// The places of labels in the sums [B, 2]. Without `of_label` they are asked for in order.
class Places {
 public:
  Places(const int32_t* labels, const int32_t* starts, const int32_t* of_label, int64_t sequences)
      : labels_(labels), starts_(starts), of_label_(of_label), sequences_(sequences) {}
  int64_t of(int32_t label) {
    if (of_label_ != nullptr) {
      sequence_ = of_label_[label];
      require_sequence();
    }
    while (of_label_ == nullptr && label >= starts_[sequence_ + 1]) {
      ++sequence_;
      require_sequence();
    }
    const LogProbOf column = labels_[label] >= 0 ? LogProbOf::answer : LogProbOf::prompt;
    return sequence_ * kNumLogProbs + static_cast<int64_t>(column);
  }

 private:
  void require_sequence() const {
    check_internal(sequence_ >= 0 && sequence_ < sequences_,
                   "linear_log_prob: a label beyond the last sequence");
  }

  const int32_t* labels_;
  const int32_t* starts_;
  const int32_t* of_label_;
  int64_t sequences_;
  int64_t sequence_ = 0;
};

// One call of the op, or of its gradient, for element type T.
template <class T>
class LogProbs {
  using at = operand::linear_log_prob;

 public:
  explicit LogProbs(const CpuBinding& b)
      : rows_(b),
        labels_(b.input<int32_t>(at::labels)),
        starts_(b.input<int32_t>(at::seq_starts)),
        of_label_(b.input<int32_t>(at::label_sequences)),
        sequences_(b.output_tensor(at::logps).shape[0]),
        sums_(b.output<float>(at::logps)),
        tokens_(b.output<float>(at::tokens)) {
    if (of_label_ != nullptr)
      wide_ = reinterpret_cast<double*>(b.scratch() + cross_entropy_layout(b.graph(), b.op()).sums);
  }

  // Each sum is made in f64, in the order of the labels.
  void operator()() const {
    std::fill(tokens_, tokens_ + sequences_ * kNumLogProbs, 0.0F);
    if (of_label_ == nullptr) return in_order();
    const int64_t places = sequences_ * kNumLogProbs;
    std::fill(wide_, wide_ + places, 0.0);
    run([&](int64_t place, double log_prob) { wide_[place] += log_prob; });
    for (int64_t i = 0; i < places; ++i) sums_[i] = static_cast<float>(wide_[i]);
  }

 private:
  // Takes the labels in order: those of a sequence are neighbours.
  void in_order() const {
    std::fill(sums_, sums_ + sequences_ * kNumLogProbs, 0.0F);
    int64_t row_of_sums = 0;
    double sums[kNumLogProbs] = {};
    const auto write = [&] {
      for (int64_t i = 0; i < kNumLogProbs; ++i) {
        sums_[row_of_sums * kNumLogProbs + i] = static_cast<float>(sums[i]);
        sums[i] = 0;
      }
    };
    run([&](int64_t place, double log_prob) {
      if (place / kNumLogProbs != row_of_sums) write();
      row_of_sums = place / kNumLogProbs;
      sums[place % kNumLogProbs] += log_prob;
    });
    write();
  }

  // Calls add(place, log-probability) for every label, and counts it there.
  template <class Add>
  void run(Add add) const {
    Places places(labels_, starts_, of_label_, sequences_);
    rows_.run(
        nullptr, 1.0F, [](const int32_t*, int64_t) {},
        [&](const int32_t* labels, int64_t count, const double* losses) {
          for (int64_t i = 0; i < count; ++i) {
            const int64_t place = places.of(labels[i]);
            add(place, -losses[i]);
            tokens_[place] += 1;
          }
        });
  }

  HeadRows<T, asked_token> rows_;
  const int32_t* labels_;
  const int32_t* starts_;
  const int32_t* of_label_;  // null: a sequence's are between its starts
  int64_t sequences_;
  double* wide_ = nullptr;
  float* sums_;
  float* tokens_;
};

// A row's loss is less its log-probability.
template <class T>
class LogProbsGradient {
  using at = operand::linear_log_prob_grad;

 public:
  explicit LogProbsGradient(const CpuBinding& b)
      : rows_(b),
        labels_(b.input<int32_t>(at::labels)),
        starts_(b.input<int32_t>(at::seq_starts)),
        of_label_(b.input<int32_t>(at::label_sequences)),
        sequences_(b.input_tensor(at::d_logps).shape[0]),
        d_sums_(b.input<float>(at::d_logps)),
        step_(b.input<double>(at::step)) {}

  void operator()() const {
    Places places(labels_, starts_, of_label_, sequences_);
    rows_.run(
        step_, 1.0F,
        [&](const int32_t* rows, int64_t count) {
          for (int64_t i = 0; i < count; ++i) rows_.scales()[i] = -d_sums_[places.of(rows[i])];
        },
        [](const int32_t*, int64_t, const double*) {});
  }

 private:
  HeadRows<T, asked_token> rows_;
  const int32_t* labels_;
  const int32_t* starts_;
  const int32_t* of_label_;
  int64_t sequences_;
  const float* d_sums_;
  const double* step_;
};

}  // namespace

BoundCall bind_linear_log_prob(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(HeadInputs::x).dtype,
                           [&](auto zero) -> BoundCall { return LogProbs<decltype(zero)>(b); });
}
BoundCall bind_linear_log_prob_grad(const CpuBinding& b) {
  return with_element_type(b, b.input_tensor(HeadInputs::x).dtype,
                           [&](auto zero) -> BoundCall { return LogProbsGradient<decltype(zero)>(b); });
}

}  // namespace plimsoll
