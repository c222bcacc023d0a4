// The loop of a run: steps, evaluations and saves when they are due, until the run ends or has to stop.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "files/run_folder.h"
#include "prepare/run/run_settings.h"
#include "runs/observer.h"
#include "runs/trainer_state.h"
#include "train/batch_source.h"
#include "train/evaluator.h"
#include "train/run_saves.h"
#include "train/run_tally.h"
#include "train/run_weights.h"
#include "train/session.h"
#include "train/stop_rules.h"

namespace plimsoll {

// The parts of a run. All of them outlive the trainer.
struct TrainerParts {
  Session& session;
  const RunPlace& place;
  OptimizerStep& step;
  BatchSource& batches;
  Evaluator* evaluator;  // null: the run has no evaluation rows
  StopRules& stop;
  RunSaves& saves;
  RunTally& tally;
  Profile* profile;  // null: none was asked for
  RunRanks& ranks = no_other_ranks();
};

// The inputs of a run.
struct RunWish {
  const RunSettings& settings;
  RunFolder& folder;
  CpuSettings cpu;
  bool resume = false, overwrite = false;
  RunObserver& observer;
  std::function<void()> begun = {};  // RunOptions::begun
};

class Trainer {
 public:
  // `begin`: before the first step, with what the run is (its fingerprint, kernels and batches).
  Trainer(const RunWish& wish, const TrainerParts& parts, TrainerState begin)
      : wish_(wish), parts_(parts), current_(std::move(begin)) {
    if (!parts_.ranks.is_alone()) reader_.emplace(parts_.ranks, parts_.step.sum());
  }

  // Returns ok or interrupted; what was done is saved, unless it is lost.
  ExitCode run();

 private:
  void load();
  void resume(const std::filesystem::path& checkpoint);
  void load_start();
  void load_saved(const std::filesystem::path& checkpoint);
  [[nodiscard]] RankReader* reader() { return reader_ ? &*reader_ : nullptr; }
  // Opens the logs. A run that resumes reads its older lines.
  void open_logs();
  ExitCode take_steps();
  void tell_ranks();
  [[noreturn]] void stop_with_error();
  bool fill_caches();
  // Does what is due after a step; after a resume, what the run had not come to.
  void settle();
  // The last of a run: its folder becomes its result.
  ExitCode end();
  // Memory and traffic of all processes, for the record.
  void gather_ranks();
  // One optimizer step over one effective batch.
  // False where a signal asks the run to stop: no step was taken.
  bool step();
  // The values of the next step, before it is taken.
  [[nodiscard]] StepMetrics next_step() const;
  void compute(const EffectiveBatch& batch, StepMetrics& metrics);
  // The step is done: notes it in the log and in the state.
  void finish_step(const EffectiveBatch& batch, const StepMetrics& metrics);
  void take_scale(const StepMetrics& metrics, const EffectiveBatch& batch);
  void tell(const StepMetrics& metrics);
  // The state is lost with the loss: nothing of it is saved.
  [[noreturn]] void lose(int64_t step, const EffectiveBatch& batch, const std::string& reason);
  // Meets the other ranks; the signals that any of them has had count for all.
  void meet(const EffectiveBatch* batch, bool reads_save_requests);
  [[nodiscard]] bool leads() const { return parts_.ranks.leads(); }
  [[nodiscard]] bool stops() const;
  void evaluate();
  // The name of a weight that is not finite at some rank; empty: there is no such weight. Where weights are whole, the
  // leading rank alone looks for one.
  [[nodiscard]] std::string weight_not_finite_of_any();
  void save(const std::string& why);
  ExitCode stop_early();
  void finish();
  [[nodiscard]] int64_t updates() const;
  [[nodiscard]] const Experiment& experiment() const;

  RunWish wish_;
  TrainerParts parts_;
  TrainerState current_;
  std::optional<RankReader> reader_;            // of several ranks
  const EffectiveBatch* last_batch_ = nullptr;  // the loader's, until the next step
  bool stops_ = false, save_requested_ = false, out_of_patience_ = false;  // as ranks agreed
  double sending_ = 0, busy_ = 0;  // seconds of the last step: waiting for other ranks, and computing
  bool whole_ = true;              // false within a step, and once the loss is lost
};

}  // namespace plimsoll
