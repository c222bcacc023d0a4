// Cuts an effective batch into micro-steps, by rows or by tokens, and deals them to the processes that share
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "data/batch/effective_batch.h"
#include "data/batch/longest_alike.h"
#include "data/batch/micro_batch.h"
#include "data/batch/shared_cut.h"

namespace plimsoll {

// One of `ranks` processes that take a part each of every effective batch.
struct Rank {
  int64_t number = 0;  // from 0 on
  int64_t ranks = 1;
};

// Rows that begin alike are put together, where sequences share their beginnings, as far as that makes
// micro-steps fewer or shorter. Rows that are packed keep their places.
//
// The batch is cut as one process would cut it, and rank r of R takes the micro-steps r, r + R, r + 2 R ...
// of all. So the ranks together have every row once, in micro-steps whose sums do not depend on how many
// ranks there are, and rows keep their numbers in the whole batch, by which dropout is drawn.
//
// All storage is allocated by the constructor.
class MicroSteps {
 public:
  // For batches of at most `sequences`.
  MicroSteps(const MicroRoom& room, const SequenceShape& shape, int64_t sequences, const Rank& rank = {});

  // `batch` must stay as it is until the next call.
  void cut(const EffectiveBatch& batch);
  // The number of micro-steps of this rank, which is that of every other: ranks synchronise after each.
  [[nodiscard]] int64_t count() const { return ceil_div(all_, rank_.ranks); }
  // The rank's rows in the order in which they came; none where other ranks have one micro-step more. Valid
  // until the next call.
  const MicroBatch& fill(int64_t step);

 private:
  [[nodiscard]] int64_t step_of(int64_t sequence) const;
  void pack(const EffectiveBatch& batch);

  MicroRoom room_;
  SharedLabels labels_of_;
  MicroPacker packer_;
  std::optional<SharedCut> shared_;
  std::optional<LongestAlike> longest_;
  bool cut_by_shared_ = false;
  MicroBatch batch_;
  Rank rank_;
  const EffectiveBatch* of_ = nullptr;
  int64_t all_ = 0;
};

}  // namespace plimsoll
