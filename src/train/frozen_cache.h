// The cache of frozen blocks' outputs for each row (passes/keep_frozen.h): computed once before the first
// step, kept in a file of the run folder as long as the run lasts, read where its micro-steps begin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch/loader.h"
#include "files/append_file.h"
#include "files/file.h"
#include "files/run_folder.h"
#include "runs/run_files.h"
#include "train/run_programs.h"

namespace plimsoll {

class FrozenCache {
 public:
  static constexpr const char* kFile = kFrozenFile;

  // Rows are those of a data set with so many. A row has kept_records() of them (plan/search/plan.h).
  FrozenCache(const Plan& plan, int64_t dataset_rows);

  // Takes over what the file holds of this experiment, and adds to it.
  void open(RunFolder& folder, const std::string& fingerprint);
  [[nodiscard]] bool is_complete() const { return complete_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // Runs the frozen program over the rows of an epoch that are not known yet. False where `interrupted`.
  bool compute(const RunPlace& place, Loader& loader, const std::function<bool()>& interrupted);
  // Fills the input of the micro-step, whose other inputs are written. Throws DamagedError for a row that is
  // another one now, and where the file was changed.
  void read(const Executor& train, const EffectiveBatch& batch, const MicroBatch& micro) const;

 private:
  struct Head;
  struct Sample;  // what one record holds: tokens of a micro-step

  [[nodiscard]] std::vector<Sample> samples_of(const Executor& program, const EffectiveBatch& batch,
                                               const MicroBatch& micro) const;
  [[nodiscard]] int64_t& place_of(int64_t row, int64_t sequence) {
    return places_[static_cast<size_t>(row * each_ + sequence)];
  }
  void find_records(int64_t begin, bool compare);
  [[nodiscard]] bool is_whole(int64_t content, int64_t bytes, uint32_t sum) const;
  void add(const Sample& sample, std::span<const std::byte> content);

  const Plan& plan_;
  std::filesystem::path file_;
  int64_t each_;                 // records of a row
  std::vector<int64_t> places_;  // by row and sequence: where the record begins; -1: absent
  int64_t bytes_ = 0;
  bool complete_ = false;
  std::optional<AppendFile> to_;
  std::optional<File> from_;
};

// None where the plan keeps nothing.
std::unique_ptr<FrozenCache> frozen_cache_for(const Plan& plan, const DataSetup& data);

}  // namespace plimsoll
