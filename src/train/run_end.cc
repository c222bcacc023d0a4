#include "train/run_end.h"

#include "base/format.h"
#include "base/system_memory.h"
#include "files/json.h"
#include "prepare/planned_card.h"
#include "runs/checkpoint.h"
#include "runs/model_card.h"

namespace plimsoll {
namespace {

void keep_card(const RunWish& wish, const RunRecord& done) {
  if (wish.settings.device != DeviceChoice::cuda || known_card_here()->facts.emulated) return;
  if (const std::string note = keep_measured(CardUse::measured(*done.card)); !note.empty())
    wish.observer.event("note    the GPU memory that this run measured could not be saved: " + note,
                        LogLevel::warn);
}

// Returns whether the folder's record is of a run that ended with this step.
bool is_record_of_end(const std::filesystem::path& output, int64_t step) {
  constexpr int64_t kMost = 1 << 20;
  std::error_code unknown;
  const std::filesystem::path record = output / "run.json";
  if (!std::filesystem::exists(record, unknown)) return false;
  const nlohmann::json read = read_json(record, kMost);
  return read.is_object() && read.value("finished", nlohmann::json()) == true &&
         read.value("steps", nlohmann::json()) == step;
}

void log_end(const TrainerParts& parts, const TrainerState& current) {
  if (parts.stop.out_of_patience() && current.step < current.total_steps)
    parts.saves.log().event("end", current.step, {{"reason", parts.stop.patience_words()}});
  else
    parts.saves.log().event("end", current.step);
}

}  // namespace

RunRecord record_of(const TrainerParts& parts, const TrainerState& current, bool finished) {
  const RunTally& tally = parts.tally;
  const RunMemory& memory = parts.session.memory;
  const std::optional<double> eval_loss =
      parts.evaluator != nullptr ? parts.evaluator->last_loss() : std::nullopt;
  const FrozenCache* frozen = parts.batches.frozen();
  return {.finished = finished,
          .steps = current.step,
          .seconds = seconds_since(tally.start),
          .final_loss = current.last_loss,
          .eval_loss = eval_loss ? eval_loss : current.eval_loss,
          .best = {},
          .device_bytes = memory.device_bytes(),
          .host_bytes = memory.host_bytes(),
          .disk_bytes = memory.disk_bytes() + (frozen != nullptr ? frozen->bytes() : 0),
          .scratch_bytes = parts.batches.loader().stored_bytes(),
          .memory = process_memory(),
          .card = parts.session.card.now(*parts.session.device),
          .products = parts.session.device->products(),
          .data_wait_seconds = parts.batches.loader().wait_seconds(),
          .offload_wait_seconds = memory.seconds_waited(),
          .kernels = current.kernels,
          .work = tally.work,
          .rows = tally.skipped.counts(),
          .loss_scale = current.loss_scale,
          .ranks = tally.ranks};
}

void end_run(const RunWish& wish, const TrainerParts& parts, const TrainerState& current) {
  const std::filesystem::path& output = wish.folder.path();
  const Plan& plan = parts.session.plan;
  const RunTally& tally = parts.tally;
  const std::string& goal = parts.stop.goal();
  if (parts.batches.frozen() != nullptr) wish.folder.remove_log(FrozenCache::kFile);
  const auto best = wish.settings.best ? best_checkpoint(output, goal) : std::nullopt;
  publish_final(best ? *best : *latest_checkpoint(output), wish.folder);
  // A run that was resumed at its end keeps what its steps measured.
  if (tally.times.steps() == 0 && current.step > 0 && is_record_of_end(output, current.step)) {
    log_end(parts, current);
    return wish.observer.event(formatted(
        "done    all {} steps were done before: nothing was trained, and run.json keeps their measurements · {}",
        format_count(current.step), output.string()));
  }
  RunRecord done = record_of(parts, current, true);
  keep_card(wish, done);
  if (best) {
    const TrainerState of = read_trainer_state(*best);
    done.best = BestStep{of.step, *of.eval_loss, goal, *of.evaluated(goal)};
  }
  write_model_card(wish.folder, wish.settings.recipe.model_card(plan, done));
  if (parts.profile != nullptr) wish.observer.result(parts.profile->write(wish.folder));
  // The record is the last file: a run that was cut before it writes all of them when it is resumed.
  write_run_json(wish.folder, plan, done, tally.times);
  log_end(parts, current);
  const bool whole = !plan.request.workload.experiment.lora || wish.settings.weights.init == Init::weights;
  report_end(wish.observer, output, plan, done, tally.times, whole);
  // Steps before a resume had rows too.
  if (tally.times.steps() == current.step)
    if (const std::string told = tally.seen.missing(); !told.empty())
      wish.observer.event(told, LogLevel::warn);
  if (wish.settings.hub)
    wish.observer.event(formatted("        upload     hf upload {} {}", *wish.settings.hub, output.string()));
}

}  // namespace plimsoll
