// All sequences of one optimizer step. They are held together before its first micro-step, since the loss is
// normalised by the target tokens of the whole step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/example.h"
#include "data/micro_batch.h"

namespace plimsoll {

// Where an epoch's order is continued: what a checkpoint stores.
struct DataPosition {
  int64_t epoch = 0;
  int64_t index = 0;  // rows of the epoch already used

  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

class EffectiveBatch {
 public:
  // Allocates for `sequences` of `max_length` tokens: nothing is allocated later.
  EffectiveBatch(int64_t sequences, int64_t max_length);

  void clear();
  // Appends an example and the number of its row in the data set; one without targets is only counted.
  void add(const Example& example, int64_t row = -1);

  [[nodiscard]] int64_t sequences() const { return static_cast<int64_t>(starts_.size()) - 1; }
  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  // 0 when every row was skipped: such a step has no loss and no update.
  [[nodiscard]] int64_t target_tokens() const { return target_tokens_; }
  [[nodiscard]] int64_t truncated_rows() const { return truncated_rows_; }
  // Rows with no target left, as truncation took them or all labels are masked.
  [[nodiscard]] int64_t skipped_rows() const { return skipped_rows_; }
  [[nodiscard]] int64_t row(int64_t sequence) const { return rows_[static_cast<size_t>(sequence)]; }
  [[nodiscard]] std::span<const int32_t> ids(int64_t sequence) const;
  [[nodiscard]] std::span<const int32_t> labels(int64_t sequence) const;

  // Micro-steps of `micro` sequences that hold all; the last one may be partly empty.
  [[nodiscard]] int64_t micro_steps(int64_t micro) const;
  // Fills the micro-batch of micro-step `step`, `micro` being the sequences that `out` has room for.
  void fill(int64_t step, MicroBatch& out) const;

  // The position after this batch, and whether it was the last of its epoch; the loader sets both.
  DataPosition next;
  bool ends_epoch = false;

  static int64_t planned_bytes(int64_t sequences, int64_t max_length);

 private:
  std::vector<int32_t> ids_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> starts_;  // one more than sequences
  std::vector<int64_t> rows_;
  int64_t target_tokens_ = 0;
  int64_t truncated_rows_ = 0;
  int64_t skipped_rows_ = 0;
};

}  // namespace plimsoll
