// All sequences of one optimizer step. They are held together before its first micro-step, since the loss is
// normalised by the target tokens of the whole step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch/micro_batch.h"
#include "data/batch/packer.h"
#include "data/encode/example.h"
#include "tasks/micro_capacity.h"

namespace plimsoll {

// The position at which an epoch's order is continued; checkpoints store it.
struct DataPosition {
  int64_t epoch = 0;
  int64_t index = 0;  // rows of the epoch already used
  int64_t token = 0;  // and tokens of the next row, where rows are joined

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

// Documents are the sequences of rows. Arguments called `sequence` below count documents; the program's
// sequences are places that have a row each, or with packing several, and rows stay whole (micro-steps:
// micro_steps.h).
class EffectiveBatch {
 public:
  // Allocates for `sequences` of this shape: nothing is allocated later.
  EffectiveBatch(int64_t sequences, const SequenceShape& shape);
  EffectiveBatch(int64_t sequences, int64_t max_length)
      : EffectiveBatch(sequences, SequenceShape{max_length, 1}) {}

  void clear();
  // Appends an example and the number of its row in the data set; one without targets, or damaged, is only
  // counted. False, and nothing has changed, when no sequence has room for it.
  bool add(const Example& example, int64_t row = -1);

  [[nodiscard]] int64_t sequences() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // The program's sequences: at most as many as the constructor was given.
  [[nodiscard]] int64_t packed_sequences() const { return packer_.sequences(); }
  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  // The number that the loss is a mean over: target tokens, or what the task counts instead (tasks/task.h). 0
  // when every row was skipped: such a step has no loss and no update.
  [[nodiscard]] int64_t target_tokens() const { return target_tokens_; }
  [[nodiscard]] int64_t truncated_rows() const { return truncated_rows_; }
  // Rows with no target left, as truncation took them or all labels are masked.
  [[nodiscard]] int64_t skipped_rows() const { return skipped_rows_; }
  // Rows that could not be read, and what was wrong with the first of them.
  [[nodiscard]] int64_t damaged_rows() const { return damaged_rows_; }
  [[nodiscard]] const std::string& first_damage() const { return first_damage_; }
  [[nodiscard]] int64_t row(int64_t sequence) const { return rows_[static_cast<size_t>(sequence)]; }
  [[nodiscard]] std::span<const int32_t> ids(int64_t sequence) const;
  [[nodiscard]] std::span<const int32_t> labels(int64_t sequence) const;
  // The numbers that came with it; none where the task has none.
  [[nodiscard]] std::span<const float> targets(int64_t sequence) const;

  // The size of the program's sequence, with all its documents. `apart`: sources and targets are counted
  // separately; else the common beginning of a pair is in `shared`.
  [[nodiscard]] RowSize size_of(int64_t packed_sequence, bool apart) const;
  // The part of the program's sequence that others may share, at the beginning of its first document. Where
  // `of_one` may train on a label, the part ends before the first token that one of its documents trains on.
  [[nodiscard]] std::span<const int32_t> begin_of(int64_t packed_sequence, SharedLabels labels_of) const;
  // Appends the documents of the program's sequence side by side, in the order in which they came.
  void append_to(MicroBatch& out, int64_t packed_sequence) const;

  // The position after this batch, and whether it was the last of its epoch; the loader sets both.
  DataPosition next;
  bool ends_epoch = false;

  static int64_t planned_bytes(int64_t sequences, const SequenceShape& shape);

 private:
  std::vector<int32_t> ids_;
  std::vector<int32_t> labels_;
  std::vector<float> targets_;   // of the documents in order, `targets_each_` of each
  std::vector<int64_t> starts_;  // one more than sequences
  std::vector<int64_t> rows_;
  std::vector<int64_t> placed_;   // sequence of each document
  std::vector<int32_t> seconds_;  // where in each document a second text begins; -1: nowhere
  size_t targets_each_ = 0;
  Packer packer_;
  int64_t target_tokens_ = 0;
  int64_t truncated_rows_ = 0;
  int64_t skipped_rows_ = 0;
  int64_t damaged_rows_ = 0;
  std::string first_damage_;
};

}  // namespace plimsoll
