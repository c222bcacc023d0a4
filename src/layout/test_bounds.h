// Bounds that tests compare arenas with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/units.h"
#include "layout/program_layout.h"

namespace plimsoll {

// The sizes of lay_out() without placing anything: persistent bytes plus the largest lower bound.
inline int64_t arena_lower_bound(std::span<const Graph> programs, Space space = Space::device) {
  int64_t persistent = 0;
  std::unordered_set<std::string_view> known;
  int64_t largest = 0;
  for (const Graph& graph : programs) {
    for (const Tensor& tensor : graph.tensors())
      if (is_persistent(tensor.role) && tensor.space == space && known.insert(tensor.name).second)
        persistent += round_up(tensor.bytes(), kArenaAlignment);
    std::vector<int64_t> change(graph.ops().size() + 1);
    for (const StorageLife& life : storage_lives(graph)) {
      if (life.space != space) continue;
      change[static_cast<size_t>(life.first)] += life.bytes;
      change[static_cast<size_t>(life.last) + 1] -= life.bytes;
    }
    int64_t alive = 0;
    for (const int64_t step : change) largest = std::max(largest, alive += step);
  }
  return persistent + largest;
}

}  // namespace plimsoll
