// The gradients of a run as sums over its ranks.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "ranks/ordered_sum.h"
#include "tasks/task.h"
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

// The sums of a task's loss over all ranks, in their order; those that are a least or a largest value of it (SumMetrics)
// stay one. `any`: this rank has computed some.
void add_up_losses(Group& group, const TaskSpec& task, bool any, std::vector<double>& sums);

}  // namespace plimsoll
