#include "layout/instance.h"

#include <bit>
#include <span>

namespace plimsoll::layout {
namespace {

// Instance::profile, by a segment tree: leaf i is node width + i, the root is node 1.
std::vector<int64_t> profile_maxima(const LiveProfile& profile, std::span<const Span> spans) {
  const size_t width = std::bit_ceil(std::max<size_t>(profile.ops.size(), 1));
  std::vector<int64_t> highest(2 * width);
  std::ranges::copy(profile.live_bytes, highest.begin() + static_cast<std::ptrdiff_t>(width));
  for (size_t node = width - 1; node > 0; --node) {
    highest[node] = std::max(highest[2 * node], highest[2 * node + 1]);
  }
  std::vector<int64_t> maxima;
  maxima.reserve(spans.size());
  for (const Span& span : spans) {
    int64_t height = 0;
    for (size_t left = width + span.begin, right = width + span.end; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) height = std::max(height, highest[left++]);
      if (right % 2 == 1) height = std::max(height, highest[--right]);
    }
    maxima.push_back(height);
  }
  return maxima;
}

}  // namespace

Instance make_instance(const Problem& problem) {
  check_problem(problem);
  const LiveProfile profile = live_profile(problem);
  const std::vector<int32_t>& ops = profile.ops;
  Instance instance;
  instance.alignment = problem.alignment;
  instance.enough = problem.enough;
  instance.beside = problem.beside;
  instance.most = problem.most;
  instance.num_points = static_cast<uint32_t>(ops.size());
  if (!ops.empty()) instance.lower_bound = std::ranges::max(profile.live_bytes);
  for (const Buffer& b : problem.buffers) {
    instance.spans.push_back({static_cast<uint32_t>(std::ranges::lower_bound(ops, b.first) - ops.begin()),
                              static_cast<uint32_t>(std::ranges::upper_bound(ops, b.last) - ops.begin())});
    instance.bytes.push_back(aligned_bytes(problem, b));
    instance.ops.push_back(int64_t{b.last} - b.first);
  }
  instance.profile = profile_maxima(profile, instance.spans);
  instance.live = profile.live_bytes;
  return instance;
}

}  // namespace plimsoll::layout
