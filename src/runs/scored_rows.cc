#include "runs/scored_rows.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "tasks/task.h"

namespace plimsoll {
namespace {

size_t values_each(const TaskSpec& task) {
  return static_cast<size_t>(task.outputs) + static_cast<size_t>(targets_of(task));
}

template <class T>
std::string text_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <class T>
void append_text(const std::string& text, std::vector<T>& to) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  const size_t before = to.size();
  to.resize(before + text.size() / sizeof(T));
  std::copy_n(first, text.size(),
              std::as_writable_bytes(std::span(to)).begin() + static_cast<ptrdiff_t>(before * sizeof(T)));
}

}  // namespace

// Numbers and values of this rank; those of all, as they travel and as they are put in order.
int64_t ScoredRows::planned_bytes(const TaskSpec& task, int64_t rows, int64_t ranks) {
  if (ranks == 1 || EvaluatedRows::planned_bytes(task, rows) == 0) return 0;
  constexpr int64_t kCopies = 6;
  return kCopies * rows * static_cast<int64_t>(sizeof(int64_t) + values_each(task) * sizeof(float));
}

void ScoredRows::add(std::span<const float> scores, const MicroBatch& micro, int64_t before) {
  if (group_.is_alone()) return rows_.add(scores, micro);
  const auto outputs = static_cast<size_t>(task_.outputs);
  const auto targets = static_cast<size_t>(targets_of(task_));
  for (size_t s = 0; s < static_cast<size_t>(micro.live_sequences); ++s) {
    numbers_.push_back(before + micro.sample_in_batch[s]);
    const auto of_scores = scores.subspan(s * outputs, outputs);
    const auto of_targets = std::span(micro.targets).subspan(s * targets, targets);
    values_.insert(values_.end(), of_scores.begin(), of_scores.end());
    values_.insert(values_.end(), of_targets.begin(), of_targets.end());
  }
}

void ScoredRows::gather() {
  const std::vector<std::string> numbers = gather_texts(group_, text_of(numbers_));
  const std::vector<std::string> values = gather_texts(group_, text_of(values_));
  numbers_.clear();
  values_.clear();
  for (size_t rank = 0; rank < numbers.size(); ++rank) {
    append_text(numbers[rank], numbers_);
    append_text(values[rank], values_);
  }
}

Metrics ScoredRows::metrics(std::span<const double> sums) {
  if (group_.is_alone() || !needs_scores()) return rows_.of(sums);
  gather();
  std::vector<size_t> order(numbers_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return numbers_[a] < numbers_[b]; });
  const auto outputs = static_cast<size_t>(task_.outputs), each = values_each(task_);
  for (const size_t row : order) {
    const auto of_row = std::span<const float>(values_).subspan(row * each, each);
    rows_.add_row(of_row.first(outputs), of_row.subspan(outputs));
  }
  return rows_.of(sums);
}

}  // namespace plimsoll
