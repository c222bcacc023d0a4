#include "train/run_saves.h"

#include <algorithm>

#include "base/format.h"
#include "base/units.h"
#include "gpu/card_fault.h"
#include "train/save_space.h"

namespace plimsoll {

RunSaves::RunSaves(const SaveRules& rules, const Experiment& experiment, const PersistentState& state,
                   CheckpointOptions options, RunObserver& observer, RunRanks& ranks)
    : rules_(rules),
      experiment_(experiment),
      state_(state),
      options_(std::move(options)),
      observer_(observer),
      ranks_(ranks) {}

namespace {

// Checkpoints that are yet to come; any number where their steps are not known.
int64_t saves_to_come(const SaveRules& rules, const TrainerState& current) {
  const Every& every = rules.every;
  const int64_t left = current.total_steps - current.step;
  switch (every.unit) {
    case Every::Unit::steps:
      return every.steps > 0 ? ceil_div(left, every.steps) : 1;
    case Every::Unit::percent:
      return static_cast<int64_t>(100.0 / every.percent) + 1;
    case Every::Unit::epochs:  // a limit of steps may ask for more epochs than are stated
      return rules.limited ? left : std::min(left, rules.epochs);
  }
  throw InternalError("saves_to_come: no such unit");
}

}  // namespace

void RunSaves::begin(const TrainerState& current, bool overwrite, LineLog::Visit visit,
                     LineLog::Visit visit_evaluation) {
  if (is_elsewhere()) {
    log_.emplace();
    return;
  }
  visit_ = std::move(visit);
  visit_evaluation_ = std::move(visit_evaluation);
  if (current.step < current.total_steps) require_savable(current);
  options_.folder->begin();
  if (overwrite) {
    if (const auto card = options_.folder->clear())
      observer_.event(formatted("note    the model card that was edited is {} now", card->string()),
                      LogLevel::warn);
  }
  open_logs(current);
}

void RunSaves::require_savable(const TrainerState& current) {
  constexpr int64_t kLogFiles = 6;  // the manifest, three logs, recipe.yaml, run.json
  const int64_t saves = saves_to_come(rules_, current);
  // One is written in addition to those that are kept.
  const int64_t held = options_.keep == kKeepAll ? saves : options_.keep + 1 + (options_.best ? 1 : 0);
  const std::string note =
      require_save_space(*options_.folder, checkpoint_files(options_) + kLogFiles,
                         checkpoint_bytes(options_, experiment_, state_),
                         export_bytes(state_, experiment_.lora, *options_.from), std::min(saves, held));
  if (!note.empty()) observer_.event(note, LogLevel::warn);
  if (options_.keep != kKeepAll || saves < 3 || !note.empty()) return;
  const int64_t bytes = checkpoint_bytes(options_, experiment_, state_);
  observer_.event(
      formatted("note    up to {} checkpoints of {}, {} of disk in all, stay in {} (save.keep: all)",
                format_count(saves), format_bytes(bytes), format_bytes(saves * bytes),
                options_.folder->path().string()),
      LogLevel::warn);
}

void RunSaves::open_logs(const TrainerState& current) {
  options_.folder->write("recipe.yaml", options_.recipe_yaml);
  log_.emplace(*options_.folder, current.step, rules_.tensorboard, visit_, visit_evaluation_, observer_);
}

void RunSaves::resumed(const TrainerState& saved) {
  saved_step_ = saved.step;
  saved_eval_ = saved.eval_loss.has_value();
}

void RunSaves::require_folder() const {
  if (!is_elsewhere() && !options_.folder->still_there())
    throw StoppedError(options_.folder->path().string() +
                       ": was removed or replaced while the run wrote there");
}

bool RunSaves::holds(const TrainerState& current) const {
  return saved_step_ == current.step && !(options_.best && current.eval_loss && !saved_eval_);
}

bool RunSaves::is_for_all(bool mine) const {
  if (!state_.has_pieces()) return mine;
  for (const std::string& each : gather_texts(ranks_.group(), mine ? "1" : "0"))
    if (each != "1") return false;
  return true;
}

void RunSaves::write(const TrainerState& current) {
  saving_ = true;
  save_checkpoint(options_, experiment_, state_, current, ranks_);
  saving_ = false;
}

void RunSaves::save(const TrainerState& current, const std::string& why, bool keep_all) {
  const auto prepare = [&] {
    require_folder();
    if (!is_elsewhere()) keep_logs();  // a run that resumes from this checkpoint reads the lines of its steps
  };
  if (state_.has_pieces())
    ranks_.together(prepare);
  else
    prepare();
  if (!is_elsewhere() || state_.has_pieces()) write(current);
  resumed(current);
  if (is_elsewhere()) return;
  if (!keep_all) remove_old();
  observer_.event(formatted("save    step {}{}", format_count(current.step), why));
  log_->event("save", current.step);
}

void RunSaves::remove_old() {
  if (is_elsewhere()) return;
  const auto kept = remove_old_checkpoints(options_);
  if (kept && told_ != *kept)
    observer_.event(
        formatted("note    {} is not removed: it holds files that the run did not write", kept->string()),
        LogLevel::warn);
  if (kept) told_ = *kept;
}

void RunSaves::make_folder_again(const TrainerState& current) {
  options_.folder->make_again();
  saved_step_ = -1;
  open_logs(current);
}

void RunSaves::stop(const TrainerState& current, bool whole) {
  if (is_elsewhere()) {
    if (state_.has_pieces()) try_to_save(current, whole);
    throw;
  }
  try {
    throw;
  } catch (const gpu::CardFault& fault) {
    throw StoppedError(fault.what() + without_card(current, fault.what()));
  } catch (const Error& error) {
    throw Error(error.code(), error.what() + keep_work(current, whole, error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string reason = formatted("{}: {}", error.path1().string(), error.code().message());
    throw StoppedError(reason + keep_work(current, whole, reason));
  } catch (const std::exception& error) {
    keep_work(current, whole, error.what());
    throw;
  }
}

std::string RunSaves::try_to_save(const TrainerState& current, bool whole) {
  std::string told;
  try {
    if (!state_.has_pieces())
      told = save_at_stop(current, whole);
    else if (ranks_.failed_together())
      ranks_.after_failure([&] { told = save_at_stop(current, whole); });
    else if (!is_elsewhere())  // others wait for what this rank sends: a save would wait for them
      told = last_words();
  } catch (const std::exception& error) {
    told = formatted("\n  the state after step {} could not be saved: {}", format_count(current.step),
                     error.what());
  }
  return told;
}

// Ranks that divide states save together or not at all.
std::string RunSaves::save_at_stop(const TrainerState& current, bool whole) {
  const auto make_folder = [&] {
    if (!is_elsewhere() && !options_.folder->still_there()) make_folder_again(current);
  };
  if (state_.has_pieces())
    ranks_.together(make_folder);
  else
    make_folder();
  if (!is_for_all(!saving_)) return is_elsewhere() ? "" : last_words();
  if (!is_for_all(whole && current.step > 0 && !weight_not_finite(state_))) return "";
  if (!is_for_all(holds(current))) save(current, " (before the stop)", true);
  return formatted("\n  the state after step {} is saved: --resume continues from there",
                   format_count(current.step));
}

std::string RunSaves::last_words() const {
  const auto last = latest_checkpoint(options_.folder->path());
  return last ? formatted("\n  the last checkpoint is whole: {}: --resume continues from there",
                          last->string())
              : std::string();
}

std::string RunSaves::keep_work(const TrainerState& current, bool whole, const std::string& reason) {
  observer_.steps_end();
  const std::string told = try_to_save(current, whole);
  if (log_) log_stop(*log_, current.step, reason);
  keep_logs();
  return told;
}

std::string RunSaves::without_card(const TrainerState& current, const std::string& reason) {
  observer_.steps_end();
  if (log_) log_stop(*log_, current.step, reason);
  keep_logs();
  const auto last = latest_checkpoint(options_.folder->path());
  if (!last)
    return "\n  there is no checkpoint yet: the run begins again with --overwrite, and save.every has one "
           "sooner";
  return formatted("\n  the last checkpoint is whole: {}: --resume continues from there", last->string());
}

void RunSaves::keep_logs() noexcept {
  try {
    options_.folder->keep_logs();
  } catch (const std::exception&) {  // a disk that flushes no log is no further error: a save reports it
  }
}

}  // namespace plimsoll
