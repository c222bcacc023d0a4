// `plimsoll train --profile`: reports where the time of the steps goes, and writes a trace of them
// (docs/howto/train.md).
#pragma once

#include <filesystem>
#include <string>

#include "data/batch/loader.h"
#include "files/run_folder.h"
#include "plan/search/plan.h"
#include "runtime/recorder.h"

namespace plimsoll {

// Spans of the compute track that belong to no op; they have no program.
enum class Beside : int32_t { transfers = -1, data = -2 };

// Times of a few steps once the first two are done (of fewer where the run is shorter, or a step has very
// many ops).
class Profile {
 public:
  // The plan must outlive it.
  explicit Profile(const Plan& plan);

  [[nodiscard]] Recorder& recorder() { return recorder_; }
  // The same options, the loader's batches recorded.
  [[nodiscard]] LoaderOptions recorded(LoaderOptions options);
  // Before the first of so many steps.
  void start(int64_t steps);
  // At the end of each step: its seconds, and those of them that it waited for data at its beginning.
  void step_done(double seconds, double data_wait);

  // Writes the trace and returns the table. Throws StoppedError when the file cannot be written.
  [[nodiscard]] std::string write(RunFolder& output) const;

 private:
  const Plan& plan_;
  int64_t warm_up_ = 0;
  int64_t steps_;  // to be recorded
  Recorder recorder_;
  int64_t batch_begin_ = 0;  // the loader's thread
};

// From what was recorded; `programs` in the order in which spans number them.
std::string profile_text(const std::vector<Graph>& programs, const Recorder& recorder,
                         const DeviceRates& rates);
// Chrome's trace format, which Perfetto opens.
void write_trace(const std::vector<Graph>& programs, const Recorder& recorder, const DeviceRates& rates,
                 const std::filesystem::path& file);

}  // namespace plimsoll
