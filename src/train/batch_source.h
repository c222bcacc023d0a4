// The batches of a run: its rows, and what is known of each of them before the first step.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/batch/loader.h"
#include "files/run_folder.h"
#include "runs/observer.h"
#include "train/frozen_cache.h"
#include "train/profile.h"
#include "train/reference_log_probs.h"

namespace plimsoll {

// The inputs with which the caches of rows are filled.
struct CacheFilling {
  RunFolder& folder;
  const std::string& fingerprint;  // of the experiment
  const RunPlace& place;
  RunObserver& observer;
  std::string model;                 // whose weights the run began with
  bool resumed = false;              // the weights are a checkpoint's
  std::function<void()> load_start;  // makes them those that the run began with
  std::function<void()> load_back;   // and those of its checkpoint again
  std::function<bool()> interrupted;
};

class BatchSource {
 public:
  // Takes the training rows. `profile` may be null.
  BatchSource(const Plan& plan, DataSetup& data, Profile* profile);

  [[nodiscard]] Loader& loader() { return loader_; }
  // Writes the rows to a scratch file where the order needs one. Before anything of an older run goes: a
  // signal ends the process here, and the scratch file with it.
  void store_rows(const std::filesystem::path& folder, RunObserver& observer);
  // Computes what the caches lack, of training rows and, where there is one, of the evaluation's. False where
  // it was interrupted.
  bool fill(const CacheFilling& with, Loader* evaluation);
  // The outputs of frozen blocks; null where the plan keeps none.
  [[nodiscard]] const FrozenCache* frozen() const { return frozen_.get(); }

 private:
  bool fill_references(const CacheFilling& with, Loader* evaluation);
  // A resumed run that lacks values computes them with the weights that it began with, which are still in the
  // model's folder: the checkpoint's come back afterwards.
  bool compute_reference_log_probs(const CacheFilling& with, Loader* evaluation);
  bool fill_frozen(const CacheFilling& with);

  int64_t frozen_bytes_;  // as planned
  std::unique_ptr<FrozenCache> frozen_;
  std::unique_ptr<ReferenceLogProbs> reference_log_probs_;  // before the loader, which asks it
  Loader loader_;
};

}  // namespace plimsoll
