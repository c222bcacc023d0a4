// Prepares effective batches ahead of the training loop, in one thread and a fixed ring of buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "data/batch/effective_batch.h"
#include "data/batch/row_reader.h"
#include "data/encode/row_encoder.h"
#include "data/rows/dataset.h"
#include "data/rows/row_order.h"
#include "data/rows/row_subset.h"

namespace plimsoll {

// A run that has not read all its rows for the plan takes rows up to this size (data/files/cell.h), which it
// plans for.
inline constexpr int64_t kAlwaysPlannedRow = 256 * kKiB;

struct LoaderOptions {
  int64_t effective = 16;  // rows, or with packing places, of an optimizer step
  bool packing = false;    // several rows in a place
  bool joined = false;     // rows are one stream of tokens, which each place has max_length of
  // Tokens that replace the first ones of each sequence, if rows are joined.
  std::vector<int32_t> joined_begin = {};
  int64_t prefetch = 2;  // batches held ready in addition to the one in use
  int64_t longest_sample =
      0;  // tokens of a row's sequences together, without packing; 0: any that are allowed
  // Size of the largest row that was read for the plan (data/files/cell.h); rows that are larger than planned
  // are damaged. 0: not known, any is allowed.
  int64_t longest_row = 0;
  // Memory of the row that takes the most (data/batch/row_memory.h), where all were read; else a bound by longest_row is planned.
  std::optional<int64_t> row_memory = {};
  int64_t epochs = 0;  // next() returns null after so many; 0: never
  OrderOptions order = {};
  std::function<void()> on_thread_start = {};  // called in the loader's thread before anything else
  // Called in the loader's thread for each example that was read, with the number of its row in the data set.
  std::function<void(int64_t row, Example& example)> on_example = {};
  // Called in the loader's thread for each batch, once its making begins (true) and once it ended (false).
  std::function<void(bool begins)> on_batch = {};
};

// The shape that the loader's batches are laid out for.
SequenceShape sequence_shape(const LoaderOptions& options, const SampleRules& samples);

// Host memory of a loader by component, known before it runs.
struct LoaderMemory {
  int64_t queue_bytes = 0;     // ring of effective batches, exact
  int64_t rows_bytes = 0;      // rows held and what decoding takes on top, as expected
  int64_t long_row_bytes = 0;  // what the longest row takes while it becomes tokens, beyond an ordinary one
  int64_t slack_bytes = 0;     // that rows and one row's scratch may take at worst; Arrow is capped to it
  int64_t thread_stack_bytes = 0;  // address space at its full size, of which some pages are touched

  // For the prediction of the process's peak.
  [[nodiscard]] int64_t resident_bytes() const { return queue_bytes + rows_bytes + long_row_bytes; }
  // Upper bound in the terms of VmData and RLIMIT_DATA.
  [[nodiscard]] int64_t data_bytes() const { return resident_bytes() + slack_bytes + thread_stack_bytes; }
};

// `dataset` has its columns selected.
LoaderMemory plan_loader_memory(const Dataset& dataset, const RowSubset& subset, const SampleRules& samples,
                                const LoaderOptions& options);

class Loader {
 public:
  // Allocates the ring. Nothing runs before start().
  Loader(Dataset dataset, RowSubset subset, ExampleEncoder encoder, const LoaderOptions& options);
  ~Loader();

  [[nodiscard]] int64_t rows() const { return reader_.rows(); }
  // Before start(): as Dataset::store_rows(), where the order needs it.
  void store_rows(const std::filesystem::path& folder,
                  const std::function<void(int64_t done, int64_t rows)>& progress);
  [[nodiscard]] int64_t stored_bytes() const { return dataset_.stored_bytes(); }
  // Without packing, and where rows are not joined.
  [[nodiscard]] int64_t steps_per_epoch() const;
  [[nodiscard]] int64_t most_sequences() const { return options_.effective; }  // of a batch
  // Begins at `position`, or goes there: what was prepared from elsewhere is dropped. UsageError for an index
  // beyond the epoch.
  void start(const DataPosition& position);
  // The next batch, valid until the next call; null after the last epoch. Waits for it when it is not ready,
  // and throws the loader thread's error when that is what comes next. Allocates nothing.
  const EffectiveBatch* next();
  // Seconds that next() has waited, in all.
  [[nodiscard]] double wait_seconds() const { return wait_seconds_; }
  // Largest bytes Arrow has held; call it when the thread does not run or as an estimate.
  [[nodiscard]] int64_t peak_arrow_bytes() const { return dataset_.peak_arrow_bytes(); }

 private:
  void stop();
  void run(const std::stop_token& token, DataPosition position);
  void require_as_counted(const Example& example, int64_t row) const;
  // Fills a batch from `position` on.
  void prepare(const DataPosition& position, EffectiveBatch& batch);
  // Each returns the position behind the rows, or the tokens, that the batch took.
  DataPosition add_rows(DataPosition position, EffectiveBatch& batch);
  DataPosition add_joined(DataPosition position, EffectiveBatch& batch);
  void encode(const DataPosition& position);
  // Returns true if the epoch has another whole sequence of joined rows.
  bool fills_another(DataPosition position);
  // Waits for a free slot; null when asked to stop.
  EffectiveBatch* free_slot(const std::stop_token& token);

  Dataset dataset_;
  RowReader reader_;
  ExampleEncoder encoder_;
  LoaderOptions options_;
  std::vector<EffectiveBatch> slots_;
  Example example_;
  int64_t row_ = -1;          // of example_
  DataPosition held_{-1, 0};  // of example_
  int64_t epoch_ = -1;        // of the batch prepared last
  bool epoch_has_targets_ = false;
  std::string first_damage_;

  // Counters of batches; a batch with number n is in slot n modulo the slots. Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t produced_ = 0;
  int64_t taken_ = 0;
  int64_t released_ = 0;
  bool finished_ = false;
  std::exception_ptr error_;

  double wait_seconds_ = 0;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace plimsoll
