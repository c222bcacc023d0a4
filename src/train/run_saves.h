// Saves a run's work: its folder's logs, its checkpoints, and what can be saved when it has to stop.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "recipe/run_values.h"
#include "runs/checkpoint.h"
#include "runs/observer.h"
#include "runs/run_log.h"

namespace plimsoll {

// The times at which a run saves, and what it logs.
struct SaveRules {
  Every every;
  bool limited = false;  // the run ends after a stated number of steps, whatever its epochs
  int64_t epochs = 1;
  bool tensorboard = false;
};

class RunSaves {
 public:
  // Experiment, state, observer and ranks outlive it. Options without a folder: another process of the run saves, and
  // all of these do nothing but note it, and write pieces where ranks divide the optimizer's states.
  RunSaves(const SaveRules& rules, const Experiment& experiment, const PersistentState& state,
           CheckpointOptions options, RunObserver& observer, RunRanks& ranks = no_other_ranks());

  // The run starts, or continues from `current`: what a save will need is looked at, then the old run goes
  // where it is to be replaced, then the logs are opened. The visits are RunLog's.
  void begin(const TrainerState& current, bool overwrite, LineLog::Visit visit,
             LineLog::Visit visit_evaluation);
  [[nodiscard]] RunLog& log() { return *log_; }
  // The checkpoint from which the run continues.
  void resumed(const TrainerState& saved);
  // Throws StoppedError once the folder was removed or replaced.
  void require_folder() const;

  [[nodiscard]] bool holds(const TrainerState& current) const;
  // Older checkpoints that are not to be kept go, unless `keep_all`.
  void save(const TrainerState& current, const std::string& why, bool keep_all);
  void remove_old();
  // Called in a catch block, when the run has to stop. The state is saved where it is `whole` and that can
  // be, the stop is logged, and the exception is thrown again with words about it.
  [[noreturn]] void stop(const TrainerState& current, bool whole);
  // The logs as far as they are written (RunFolder), once a save; never fails.
  void keep_logs() noexcept;

 private:
  [[nodiscard]] bool is_elsewhere() const { return options_.folder == nullptr; }
  // A save takes all ranks: true if it is for each of them.
  [[nodiscard]] bool is_for_all(bool mine) const;
  void write(const TrainerState& current);
  // The words on it where the state after the last step was saved, or could not be; "" where it is not to be.
  std::string save_at_stop(const TrainerState& current, bool whole);
  [[nodiscard]] std::string last_words() const;
  std::string try_to_save(const TrainerState& current, bool whole);
  void require_savable(const TrainerState& current);
  void open_logs(const TrainerState& current);
  void make_folder_again(const TrainerState& current);
  // The work on the card is gone: returns words about where the last checkpoint is.
  std::string without_card(const TrainerState& current, const std::string& reason);
  std::string keep_work(const TrainerState& current, bool whole, const std::string& reason);

  SaveRules rules_;
  const Experiment& experiment_;
  const PersistentState& state_;
  CheckpointOptions options_;
  RunObserver& observer_;
  RunRanks& ranks_;
  LineLog::Visit visit_;
  LineLog::Visit visit_evaluation_;
  std::optional<RunLog> log_;
  int64_t saved_step_ = -1;  // of the newest checkpoint, and whether it knows its evaluation
  bool saved_eval_ = false;
  bool saving_ = false;
  std::filesystem::path told_;  // a checkpoint that stays
};

}  // namespace plimsoll
