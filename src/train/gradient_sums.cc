#include "train/gradient_sums.h"

#include <algorithm>
#include <limits>

namespace plimsoll {

GradientSums::GradientSums(Group& group, const PersistentState& state) : sum_(group) {
  if (group.is_alone()) return;
  for (const TableRow& row : state.rows())
    if (row.role == Role::gradient) parts_[row.dtype].push_back(state.bytes(row));
}

void GradientSums::clear() const {
  for (const auto& [dtype, parts] : parts_)
    for (const std::span<std::byte> part : parts) std::ranges::fill(part, std::byte{0});
}

void GradientSums::add_up() {
  for (const auto& [dtype, parts] : parts_) sum_.add(parts, dtype);
}

void add_up_losses(Group& group, const TaskSpec& task, bool any, std::vector<double>& sums) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const SumMetrics& rule = rule_of(task.task).metrics;
  const auto count = std::ssize(sums);
  const auto neutral = [&](int64_t i) {
    return i == rule.least ? kInfinity : i == rule.most ? -kInfinity : 0.0;
  };
  std::vector<double> all(sums.size() * static_cast<size_t>(group.size()));
  const auto of_rank = [&](int64_t rank, int64_t i) -> double& {
    return all[static_cast<size_t>(rank * count + i)];
  };
  for (int64_t i = 0; i < count; ++i)
    of_rank(group.rank(), i) = any ? sums[static_cast<size_t>(i)] : neutral(i);
  group.all_gather(std::as_writable_bytes(std::span(all)));
  for (int64_t i = 0; i < count; ++i) {
    double total = neutral(i);
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      const double value = of_rank(rank, i);
      total = i == rule.least  ? std::min(total, value)
              : i == rule.most ? std::max(total, value)
                               : total + value;
    }
    sums[static_cast<size_t>(i)] = total;
  }
}

}  // namespace plimsoll
