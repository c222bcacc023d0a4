// The cache of reference log-probabilities, those of a row's answers by the model that a run began with,
// where nothing else keeps that model (task: dpo in full): computed once before the first step, kept in the
// run folder as a line for each row, in any order. Each line has a checksum; lines from the first damaged one
// on are recomputed.
#pragma once

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch/loader.h"
#include "files/append_file.h"
#include "files/run_folder.h"
#include "prepare/setup.h"
#include "train/run_programs.h"

namespace plimsoll {

class BatchWriter;

class ReferenceLogProbs {
 public:
  static constexpr const char* kFile = kReferenceFile;
  enum class Of : uint8_t { train, eval };

  // For the rows of both; their loaders give examples what is known from serve() on.
  explicit ReferenceLogProbs(DataSetup& data);
  ReferenceLogProbs(const ReferenceLogProbs&) = delete;
  ReferenceLogProbs& operator=(const ReferenceLogProbs&) = delete;

  // Takes over what the file holds of this experiment, and adds to it. Of several ranks the leading one holds the file,
  // and all know what it knows.
  void open(RunFolder& folder, const std::string& fingerprint, bool resumed, RunRanks& ranks);
  // Returns true if the file says that all rows are there.
  [[nodiscard]] bool are_complete() const;
  // Reads a finished run's file. Throws UsageError where it is absent, DamagedError where a line is not as it
  // was written.
  void read(const std::filesystem::path& folder);
  // Runs the reference program over the rows of an epoch that are not known yet; before the first of them
  // `begin`, which gives the weights their first values. False where `interrupted`. Several ranks compute the rows of a
  // batch together, and begin where any row may be unknown.
  bool compute(Of of, const RunPlace& place, Loader& loader, const std::function<bool()>& interrupted,
               const std::function<void()>& begin);
  // All rows are there, and on the disk.
  void complete(RunRanks& ranks);
  // From here on an example without a reference is an error.
  void serve() { serves_ = true; }

 private:
  using Values = std::array<float, 2>;  // of the chosen answer and of the rejected one
  static constexpr std::array<const char*, 2> kNames = {"train", "eval"};

  void give_to(Of of, DataSource& source);
  // Bytes of the leading lines that are as they were written.
  int64_t take_lines(const std::filesystem::path& file);
  // False where it is no line of ours, or not as it was written.
  bool take(std::string_view line);
  void open_file(RunFolder& folder, const std::string& fingerprint, bool resumed);
  // Every rank gets what the leading one knows.
  void share(RunRanks& ranks);
  // The rows of a batch, of which each rank has computed some. False where a rank is interrupted.
  bool exchange(Of of, const EffectiveBatch& batch, RunRanks& ranks, bool interrupted);
  // This rank's rows of a batch that are not known; false where `interrupted`.
  struct Computing {
    GatheringProgram& program;
    BatchWriter& writer;
    MicroSteps& steps;
  };
  bool compute_batch(Of of, const Computing& by, const EffectiveBatch& batch,
                     const std::function<bool()>& interrupted, const std::function<void()>& begin);
  // The micro-steps of a batch with a row that is not known.
  std::vector<int64_t> unknown_of(Of of, MicroSteps& steps, const EffectiveBatch& batch) const;
  void write(std::string line);
  void add(Of of, int64_t row, const Values& values);
  [[nodiscard]] bool knows(Of of, int64_t row) const;

  std::array<std::vector<Values>, 2> known_;  // by row of the data set; NaN: not yet
  std::optional<AppendFile> file_;
  std::vector<Values> exchanged_;  // of the rows of a batch, rank by rank
  bool has_sums_ = false;          // lines of earlier versions have no checksums
  bool complete_ = false;
  std::atomic<bool> serves_ = false;  // loaders ask from their threads
};

// None where the task asks for none.
std::unique_ptr<ReferenceLogProbs> reference_log_probs_for(const Experiment& experiment, DataSetup& data);

}  // namespace plimsoll
