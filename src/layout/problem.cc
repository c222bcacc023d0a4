#include "layout/problem.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"

namespace plimsoll::layout {

int64_t aligned_bytes(const Problem& problem, const Buffer& buffer) {
  return round_up(buffer.bytes, problem.alignment);
}

void check_problem(const Problem& problem) {
  constexpr int64_t kMaxTotal = int64_t{1} << 62;
  const int64_t alignment = problem.alignment;
  check_internal(
      alignment > 0 && alignment < kMaxTotal && std::has_single_bit(static_cast<uint64_t>(alignment)),
      formatted("layout: alignment {} is no power of two", alignment));
  int64_t total = 0;
  for (const Buffer& b : problem.buffers) {
    if (b.bytes < 0) {
      throw InternalError(formatted("layout: buffer {} has {} bytes", b.name, b.bytes));
    }
    if (b.first < 0 || b.first > b.last) {
      throw InternalError(formatted("layout: buffer {} lives from op {} to op {}", b.name, b.first, b.last));
    }
    // In this order nothing overflows: rounding up adds less than one alignment.
    if (b.bytes > kMaxTotal - alignment || aligned_bytes(problem, b) > kMaxTotal - total) {
      throw InternalError(
          formatted("layout: the sizes up to buffer {} do not fit into 62 bits together", b.name));
    }
    total += aligned_bytes(problem, b);
  }
}

LiveProfile live_profile(const Problem& problem) {
  LiveProfile profile;
  std::vector<int32_t>& ops = profile.ops;
  ops.reserve(problem.buffers.size());
  for (const Buffer& b : problem.buffers) ops.push_back(b.first);
  std::ranges::sort(ops);
  ops.erase(std::ranges::unique(ops).begin(), ops.end());

  // First the change at each point (one more slot for what ends after the last), then its running sum.
  std::vector<int64_t>& live = profile.live_bytes;
  live.assign(ops.size() + 1, 0);
  for (const Buffer& b : problem.buffers) {
    live[static_cast<size_t>(std::ranges::lower_bound(ops, b.first) - ops.begin())] +=
        aligned_bytes(problem, b);
    live[static_cast<size_t>(std::ranges::upper_bound(ops, b.last) - ops.begin())] -=
        aligned_bytes(problem, b);
  }
  live.pop_back();
  for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  return profile;
}

int64_t lower_bound(const Problem& problem) {
  const LiveProfile profile = live_profile(problem);
  return profile.live_bytes.empty() ? 0 : std::ranges::max(profile.live_bytes);
}

int32_t peak_op(const Problem& problem) {
  const LiveProfile profile = live_profile(problem);
  check_internal(!profile.ops.empty(), "layout: the peak of a problem without buffers was asked for");
  const auto peak = std::ranges::max_element(profile.live_bytes);
  return profile.ops[static_cast<size_t>(peak - profile.live_bytes.begin())];
}

}  // namespace plimsoll::layout
