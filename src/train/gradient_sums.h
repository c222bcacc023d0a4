// The gradients of a run as sums over its ranks.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "ranks/ordered_sum.h"
#include "weights/persistent_state.h"

namespace plimsoll {

class GradientSums {
 public:
  // All gradients of the state, in the order of its tensors; they are in memory. Nothing where the group is
  // one process.
  GradientSums(Group& group, const PersistentState& state);

  // This rank adds nothing to the sums.
  void clear() const;
  void add_up();
  [[nodiscard]] int64_t sent_bytes() const { return sum_.sent_bytes(); }

 private:
  std::map<DType, std::vector<std::span<std::byte>>> parts_;  // by type
  OrderedSum sum_;
};

}  // namespace plimsoll
