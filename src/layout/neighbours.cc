#include "layout/neighbours.h"

namespace plimsoll::layout {

std::optional<Pairs> pairs_of(const Instance& instance) {
  constexpr int64_t kMostPairs = 3'000'000;
  std::vector<int32_t> by_begin(instance.spans.size());
  std::iota(by_begin.begin(), by_begin.end(), 0);
  const auto span = [&](int32_t buffer) { return instance.spans[static_cast<size_t>(buffer)]; };
  std::ranges::stable_sort(by_begin, {}, [&](int32_t buffer) { return span(buffer).begin; });
  Pairs pairs;
  std::vector<int32_t> alive;
  for (const int32_t buffer : by_begin) {
    std::erase_if(alive, [&](int32_t other) { return span(other).end <= span(buffer).begin; });
    if (static_cast<int64_t>(pairs.size() + alive.size()) > kMostPairs) return std::nullopt;
    for (const int32_t other : alive) pairs.emplace_back(buffer, other);
    alive.push_back(buffer);
  }
  return pairs;
}

Neighbours::Neighbours(const Pairs& pairs, size_t buffers) : first_(buffers + 1), all_(2 * pairs.size()) {
  for (const auto& [a, b] : pairs)
    for (const int32_t buffer : {a, b}) ++first_[static_cast<size_t>(buffer) + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  std::vector<size_t> at(first_.begin(), first_.end() - 1);
  for (const auto& [a, b] : pairs) {
    all_[at[static_cast<size_t>(a)]++] = b;
    all_[at[static_cast<size_t>(b)]++] = a;
  }
}

}  // namespace plimsoll::layout
