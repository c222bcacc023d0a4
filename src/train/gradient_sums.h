// The exchange of ranks in a step: gradients, which become sums over all of them, and where they divide the
// optimizer's states, the sums of squares behind clipping and the weights that each has updated.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ranks/exchange_way.h"
#include "ranks/ordered_sum.h"
#include "ranks/run_ranks.h"
#include "runtime/device_bytes.h"
#include "runtime/executor.h"
#include "tasks/task.h"
#include "weights/persistent_state.h"

namespace plimsoll {

// Tensors are exchanged wherever they are: a card's go through memory of the host from which it copies by itself, and
// are added up there, or by NCCL from card to card.
class GradientSums {
 public:
  // `update`: the program that updates weights, which says of what ranks have a piece each: the optimizer's, or the
  // training step's where its backward pass updates them. Nothing where the group is one process.
  GradientSums(RunRanks& ranks, Device& device, const PersistentState& state, const Graph& update,
               ExchangeWay way);

  // This rank adds nothing to the sums.
  void clear();
  // Gradients become sums; of those that are divided, this rank's pieces.
  void add_up();
  // Every rank has updated its pieces of the weights; those that each has all of become whole.
  void gather_weights();

  // For updates in the backward pass: the gradient of a weight, complete at this rank, becomes a sum, or this rank's
  // piece of it does; and its pieces become whole once each rank has updated its own.
  void add_up(const std::string& weight, const DeviceBytes& gradient);
  void gather_weight(const std::string& weight);

  // Before the norm is formed by `update`: each rank has added up the squares of its pieces.
  void exchange_squares(const Executor& update);
  [[nodiscard]] int64_t sent_bytes() const { return sum_.sent_bytes(); }
  [[nodiscard]] int64_t exchange_bytes() const { return sum_.exchange_bytes(); }
  // For others that exchange what is large, between two steps.
  [[nodiscard]] OrderedSum& sum() { return sum_; }

 private:
  // A weight of which each rank updates a piece.
  struct Divided {
    const TableRow* weight;
    const TableRow* rounded_from;  // its master, where that is whole at every rank; else null
  };
  [[nodiscard]] RankBytes bytes_of(const TableRow& row);
  void round(const Divided& divided);

  Group& group_;
  Device& device_;
  PersistentState state_;
  std::vector<std::unique_ptr<ByteStore>> stores_;   // of what is not in memory
  std::map<std::string, int64_t> cut_;               // elements of a piece, by weight
  std::map<DType, std::vector<RankBytes>> parts_;    // gradients by type
  std::map<DType, std::vector<RankPieces>> pieces_;  // likewise
  std::map<std::string, DType> gradient_types_;      // by weight
  std::vector<Divided> divided_;
  std::vector<RankPieces> gathered_;  // of each of them: the master, or the weight
  std::map<std::string, size_t> divided_at_;
  std::vector<std::string> squares_;  // names of sums, one for each rank
  std::vector<double> all_squares_;   // of each rank, in their order
  OrderedSum sum_;
};

// Behind an all_gather of `program`: what it left in its place, of which each rank has its own piece, becomes whole.
void gather_weight(const Executor& program, const Op& gather, OrderedSum& sum);

// The sums of a task's loss over all ranks, in their order; those that are a least or a largest value of it (SumMetrics)
// stay one. `any`: this rank has computed some.
void add_up_losses(Group& group, const TaskSpec& task, bool any, std::vector<double>& sums);

}  // namespace plimsoll
