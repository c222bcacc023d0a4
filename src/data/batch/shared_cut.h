// Puts rows of an effective batch into micro-steps with rows that begin as they do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/batch/effective_batch.h"
#include "data/batch/prefix_tree.h"
#include "tasks/micro_capacity.h"

namespace plimsoll {

// Rows are sorted by their tokens. Then two rows share the least of what neighbours between them share, and a
// micro-step's tokens are those of its rows less what each shares with the one before it there: no fewer than
// its tree has (data/batch/prefix_tree.h). The same rows are always put alike.
//
// All storage is allocated by the constructor.
class SharedCut {
 public:
  // For batches of at most `rows`; the whole rows of a micro-step have at most `whole_tokens` together.
  SharedCut(const MicroCapacity& capacity, int64_t rows, int64_t whole_tokens);

  // `batch` must stay as it is.
  void set(const EffectiveBatch& batch, SharedLabels labels);
  // Cuts into as few micro-steps as are found, `most` at most; false: none were found, and of_row() is not
  // valid.
  bool cut(int64_t most);
  [[nodiscard]] int64_t count() const { return std::ssize(filled_); }
  [[nodiscard]] int64_t of_row(int64_t row) const { return step_of_[static_cast<size_t>(row)]; }
  // Tokens of all micro-steps, `steps` of them, if each row is in the one that step_of(row) returns.
  int64_t tokens(int64_t steps, const std::function<int64_t(int64_t)>& step_of);

 private:
  struct Row {
    std::span<const int32_t> begin;  // what other rows may share
    int64_t tokens = 0, whole_tokens = 0;
    int32_t place = 0;  // in sorted order
  };
  struct Filled {
    int64_t rows = 0, tokens = 0, whole_tokens = 0;
  };
  [[nodiscard]] const Row& row(int32_t number) const { return rows_[static_cast<size_t>(number)]; }
  [[nodiscard]] bool takes(const Filled& filled, const Row& row, int64_t shared) const;
  bool put_into(int64_t steps);
  // Into shared_: what a row has in common with the one in each micro-step that is most like it.
  void find_shared(int32_t number);

  MicroCapacity capacity_;
  int64_t whole_tokens_;
  std::vector<Row> rows_;
  std::vector<int32_t> sorted_, longest_first_, step_of_;
  std::vector<int64_t> common_;  // of each row in sorted order, with the one before it
  std::vector<int64_t> shared_;  // of each micro-step
  std::vector<Filled> filled_;
  int64_t common_to_all_ = 0;
};

}  // namespace plimsoll
