// Statistics of a data set, by reading and encoding every row once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/batch/loader.h"
#include "data/encode/row_encoder.h"
#include "data/rows/dataset.h"
#include "data/rows/row_subset.h"
#include "tasks/micro_capacity.h"

namespace plimsoll {

// The least length that all but one row in a thousand stay within, and how many do not.
struct UsualLength {
  int64_t tokens = 0, rows_longer = 0;
};

struct LargestRow {
  int64_t size = 0;  // of the row with the largest (data/files/cell.h)
  int64_t memory =
      0;  // of the row that takes the most on its way to tokens (row_memory.h); 0: not all were read
};

struct DataStatistics {
  bool of_all_rows = false;  // else of a sample
  int64_t rows = 0;
  int64_t tokens = 0;         // after truncation, skipped rows not counted
  int64_t target_tokens = 0;  // that the loss sees, or what it counts instead of tokens
  int64_t labelled = 0;       // tokens that carry a label
  int64_t squares = 0;        // of the lengths behind `tokens`: what attention's work grows with
  int64_t longest = 0;        // tokens of the longest row, before truncation
  // Tokens of rows with targets, as they are cut: of the longest sequence (where targets are separate, of a
  // source), of the longest target, and of all sequences of a row together.
  int64_t longest_sequence = 0, longest_target = 0, longest_sample = 0;
  int64_t longest_shared = 0;  // the last of them, where what a row's sequences begin with alike counts once
  int64_t common_begin = 0;    // tokens that every sequence of rows with targets begins with
  UsualLength usual;
  std::vector<RowSize> sizes;  // of rows with targets: all of few, of many some that are spread evenly
  // The share of tokens that 1, 2, 4 ... rows have in common at their beginnings, estimated from a few
  // hundred rows.
  std::vector<double> shared;
  LargestRow largest;
  int64_t truncated = 0;     // rows
  int64_t skipped = 0;       // rows with no target left
  int64_t damaged = 0;       // rows that cannot be read, where the data set is to skip them
  std::string first_damage;  // why the first of them cannot

  [[nodiscard]] double share_of_rows(int64_t count) const {
    return rows == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(rows);
  }
  [[nodiscard]] double share_truncated() const { return share_of_rows(truncated); }
};

// Measures an epoch; lengths and sizes are of every row, also where an epoch visits a part of them. Costs the
// time of tokenising everything, shared by `threads`, and the memory of a unit for each of them; the numbers
// are the same for any number. `dataset` has its columns selected and holds nothing afterwards. `progress` is
// called now and then with the rows that were read, from one thread at a time.
DataStatistics measure_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                            const std::function<void(int64_t)>& progress = {}, int64_t threads = 1);

// Measures a few thousand rows spread over the data, which takes a moment however large they are; all rows
// where they are few. `rows` is the number that was read.
DataStatistics sample_data(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder);

// The rows of the subset that fit into the encoder's length, found by encoding every one.
RowSubset rows_that_fit(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                        int64_t threads = 1);

// Throws the UsageError for a data set without a row to learn from. `first_damage`: of rows that are skipped.
[[noreturn]] void refuse_without_targets(const std::string& name, const SampleRules& samples,
                                         const std::string& first_damage);

// Throws the UsageError for texts that fill no sequence of data.packing: joined.
[[noreturn]] void refuse_short_texts(const std::string& name, const SampleRules& samples);

// Optimizer steps of so many epochs, each of so many steps: a part of an epoch is rounded up, as transformers does.
int64_t steps_of_epochs(double epochs, int64_t an_epoch);

// The same with packing, where epochs differ, found by encoding every row once: while it counts, a row takes 4 bytes
// of memory.
int64_t count_packed_steps(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder,
                           const LoaderOptions& options, double epochs, int64_t threads = 1);

}  // namespace plimsoll
