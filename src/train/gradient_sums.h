// The exchange of ranks in a step: gradients, which become sums over all of them, and where they divide the
// optimizer's states, the sums of squares behind clipping and the weights that each has updated.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ranks/ordered_sum.h"
#include "runtime/executor.h"
#include "tasks/task.h"
#include "weights/persistent_state.h"

namespace plimsoll {

class GradientSums {
 public:
  // All gradients of the state, in the order of its tensors; they are in memory. `update`: the optimizer's program,
  // which says of what ranks have a piece each. Nothing where the group is one process.
  GradientSums(Group& group, const PersistentState& state, const Graph& update);

  // This rank adds nothing to the sums.
  void clear() const;
  // Gradients become sums; of those that are divided, this rank's pieces.
  void add_up();
  // Before the norm is formed by `update`: each rank has added up the squares of its pieces.
  void exchange_squares(const Executor& update);
  // Every rank has updated its pieces of the weights.
  void gather_weights();
  [[nodiscard]] int64_t sent_bytes() const { return sum_.sent_bytes(); }

 private:
  // A weight whose master, updated in pieces, is whole at every rank: it is rounded from that.
  struct Rounded {
    std::span<const std::byte> master;
    std::span<std::byte> weight;
    DType dtype;
  };

  Group& group_;
  std::map<DType, std::vector<std::span<std::byte>>> parts_;  // by type
  std::map<DType, std::vector<RankPieces>> pieces_;           // likewise
  std::vector<RankPieces> weights_;
  std::vector<Rounded> rounded_;
  std::vector<std::string> squares_;  // names of sums, one for each rank
  std::vector<double> all_squares_;   // of each rank, in their order
  OrderedSum sum_;
};

// The sums of a task's loss over all ranks, in their order; those that are a least or a largest value of it (SumMetrics)
// stay one. `any`: this rank has computed some.
void add_up_losses(Group& group, const TaskSpec& task, bool any, std::vector<double>& sums);

}  // namespace plimsoll
