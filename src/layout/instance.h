// A problem as the solvers see it: lifetimes in points of the live profile, aligned sizes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "layout/problem.h"
#include "layout/ranked_spans.h"

namespace plimsoll::layout {

// The facts that all orders share, computed once per problem.
struct Instance {
  uint32_t num_points = 0;
  int64_t alignment = 1;
  int64_t lower_bound = 0;
  int64_t enough = 0;            // of the problem
  int64_t beside = 0;            // of the problem
  int64_t most = 0;              // of the problem
  std::vector<int64_t> live;     // by point of the profile: bytes
  std::vector<Span> spans;       // by buffer, in points of the live profile; never empty
  std::vector<int64_t> bytes;    // by buffer, aligned
  std::vector<int64_t> profile;  // by buffer: the most bytes alive at one op of its lifetime
  std::vector<int64_t> ops;      // by buffer: from its first to its last
};

// Throws InternalError on a problem that makes no sense (check_problem).
Instance make_instance(const Problem& problem);

// Buffers by their keys, the largest first.
template <class Key>
std::vector<int32_t> by_keys(const Instance& instance, const Key& key) {
  std::vector<decltype(key(0))> keys;
  std::vector<int32_t> order(instance.spans.size());
  std::iota(order.begin(), order.end(), 0);
  for (const int32_t buffer : order) keys.push_back(key(buffer));
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](int32_t buffer) { return keys[static_cast<size_t>(buffer)]; });
  return order;
}

// The result at which improving stops: a five-hundredth of the bound is not worth its time.
inline int64_t good_enough(const Instance& instance) {
  return std::max(instance.enough, instance.lower_bound + instance.lower_bound / 500);
}

// The aim where improving is hard: the arena within a hundredth of its bound.
inline int64_t near_enough(const Instance& instance) {
  const int64_t hundredth =
      (instance.lower_bound + instance.beside) / 100 / instance.alignment * instance.alignment;
  return std::max(instance.enough, instance.lower_bound + hundredth);
}

}  // namespace plimsoll::layout
