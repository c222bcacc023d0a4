// Finds the buffers that are alive at the same time.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layout/instance.h"

namespace plimsoll::layout {

// Buffers that are alive together at some point; none: too many to do anything with (models of hundreds of
// layers).
using Pairs = std::vector<std::pair<int32_t, int32_t>>;
std::optional<Pairs> pairs_of(const Instance& instance);

// By buffer: those that it is alive with.
class Neighbours {
 public:
  Neighbours(const Pairs& pairs, size_t buffers);
  [[nodiscard]] std::span<const int32_t> of(int32_t buffer) const {
    const auto b = static_cast<size_t>(buffer);
    return std::span(all_).subspan(first_[b], first_[b + 1] - first_[b]);
  }

 private:
  std::vector<size_t> first_;
  std::vector<int32_t> all_;
};

}  // namespace plimsoll::layout
