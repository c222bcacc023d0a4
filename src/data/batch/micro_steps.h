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
// Ranks get as many tokens each as can be: the longest rows first, each to the rank that has the fewest, and
// no rank more than ceil(sequences / ranks) of them. What a rank has it cuts by itself, into micro-steps of
// which others may have more; none where a batch has fewer rows than there are ranks. Rows keep their numbers
// in the whole batch, by which dropout is drawn.
//
// All storage is allocated by the constructor.
class MicroSteps {
 public:
  // For batches of at most `sequences`.
  MicroSteps(const MicroCapacity& capacity, const SequenceShape& shape, int64_t sequences,
             const Rank& rank = {});

  // `batch` must stay as it is until the next call.
  void cut(const EffectiveBatch& batch);
  // The number of micro-steps of this rank.
  [[nodiscard]] int64_t count() const { return all_; }
  // Rows in the order in which they came. Valid until the next call.
  const MicroBatch& fill(int64_t step);
  // One sequence of the batch, whichever rank's. Valid until the next call.
  const MicroBatch& fill_with(const EffectiveBatch& batch, int64_t sequence);

 private:
  const MicroBatch& completed();
  // Sequences of the rank by number; they are the batch's where it is alone.
  [[nodiscard]] int64_t step_of(int64_t number) const;
  [[nodiscard]] int64_t sequences() const;
  [[nodiscard]] int64_t sequence(int64_t number) const;
  void level(const EffectiveBatch& batch);
  void pack(const EffectiveBatch& batch);

  MicroCapacity capacity_;
  SharedLabels labels_of_;
  MicroPacker packer_;
  std::optional<SharedCut> shared_;
  std::optional<LongestAlike> longest_;
  bool cut_by_shared_ = false;
  MicroBatch batch_;
  Rank rank_;
  std::vector<int64_t> own_;  // sequences of the batch, ascending; empty where the rank is alone
  struct Sized {
    int64_t tokens = 0, sequence = 0;
  };
  std::vector<Sized> by_size_;
  std::vector<int64_t> tokens_, counts_;  // of each rank, while rows are dealt
  const EffectiveBatch* of_ = nullptr;
  int64_t all_ = 0;
};

}  // namespace plimsoll
