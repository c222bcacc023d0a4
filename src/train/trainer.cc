#include "train/trainer.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "prepare/resume.h"
#include "runs/stopped_batch.h"
#include "train/run_end.h"
#include "train/run_signals.h"
#include "weights/adapter_start.h"

namespace plimsoll {
namespace {

bool is_interrupted() { return stop_request() != nullptr; }

std::string scale_text(double scale) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", scale);
  return text.data();
}

}  // namespace

ExitCode Trainer::run() {
  load();
  parts_.batches.store_rows(wish_.folder.path(), wish_.observer);
  open_logs();
  listen_to_stop_requests();
  if (parts_.profile != nullptr) parts_.profile->start(current_.total_steps - current_.step);
  parts_.tally.start = RunClock::now();
  const ExitCode end = [this] {
    try {
      return take_steps();
    } catch (const std::exception&) {
      parts_.saves.stop(current_, whole_);
    }
  }();
  if (end == ExitCode::ok && experiment().lora)
    wish_.settings.recipe.require_model_unchanged(current_.fingerprint, wish_.folder.path());
  return end;
}

ExitCode Trainer::take_steps() {
  StopRules& stop = parts_.stop;
  if (!fill_caches()) {
    wish_.observer.event(formatted("stopped before {} step; continue with --resume",
                                   current_.step > 0 ? "another" : "the first"));
    return ExitCode::interrupted;
  }
  if (current_.step > 0) settle();
  parts_.batches.loader().start(current_.position);
  while (current_.step < current_.total_steps && !is_interrupted() && !stop.out_of_patience()) {
    step();
    settle();
  }
  if (stop.out_of_patience())
    wish_.observer.event(
        formatted("stop    step {}  {}", format_count(current_.step), stop.patience_words()));
  if (is_interrupted() && current_.step < current_.total_steps && !stop.out_of_patience())
    return stop_early();
  if (parts_.evaluator != nullptr && !current_.eval_loss) evaluate();
  save("");
  finish();
  return ExitCode::ok;
}

const Experiment& Trainer::experiment() const { return parts_.session.plan.request.workload.experiment; }

// Frozen weights always come from the model folder; what trains comes from the checkpoint where there is one.
void Trainer::load() {
  const std::filesystem::path& output = wish_.folder.path();
  const auto checkpoint = wish_.resume ? latest_checkpoint(output) : std::nullopt;
  if (experiment().lora || !checkpoint) load_start();
  if (checkpoint) return resume(*checkpoint);
  if (wish_.resume)
    wish_.observer.event(formatted("note    {} holds no checkpoint: starting at step 0", output.string()),
                         LogLevel::warn);
  begin_adapters(wish_.settings.weights, experiment(), wish_.cpu, parts_.session.state);
}

void Trainer::load_start() {
  plimsoll::load_start(wish_.settings.weights, experiment(), parts_.session.state, wish_.observer);
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  const TrainerState saved = read_trainer_state(checkpoint);
  wish_.settings.recipe.require_same_experiment(checkpoint, saved, current_);
  if (!verify_checkpoint(checkpoint))
    wish_.observer.event(
        formatted("note    {} has no checksums: an earlier version saved it", checkpoint.string()));
  load_checkpoint(checkpoint, experiment(), parts_.session.state);
  take_out_starts(parts_.session.state, experiment().lora_options);
  for (const std::string& note :
       {changed_bits_note(saved, current_), skipped_steps_note(checkpoint, saved, parts_.session.plan),
        wish_.settings.recipe.extension_note(saved, current_)})
    if (!note.empty()) wish_.observer.event(note, LogLevel::warn);
  wish_.observer.event("resume  " + checkpoint.string());
  take_over(saved, current_);
  parts_.saves.resumed(current_);
}

// Everything is claimed and read: the old run may go.
void Trainer::open_logs() {
  parts_.saves.begin(
      current_, wish_.overwrite, [this](const nlohmann::json& line) { parts_.stop.read_step(line); },
      [this](const nlohmann::json& line) { parts_.stop.read_evaluation(line); });
  parts_.saves.log().event(current_.step > 0 ? "resume" : "start", current_.step,
                           start_details(parts_.session.plan, current_));
}

bool Trainer::fill_caches() {
  const CacheFilling with{.folder = wish_.folder,
                          .fingerprint = current_.fingerprint,
                          .place = parts_.place,
                          .observer = wish_.observer,
                          .model = wish_.settings.weights.model,
                          .resumed = current_.step > 0,
                          .load_start =
                              [this] {
                                whole_ = false;
                                load_start();
                              },
                          .load_back =
                              [this] {
                                load_checkpoint(*latest_checkpoint(wish_.folder.path()), experiment(),
                                                parts_.session.state);
                                whole_ = true;
                              },
                          .interrupted = is_interrupted};
  Loader* evaluation = parts_.evaluator != nullptr ? &parts_.evaluator->loader() : nullptr;
  if (!parts_.batches.fill(with, evaluation)) return false;
  if (const KeptRows* frozen = parts_.batches.frozen()) parts_.step.begin_with(*frozen);
  return true;
}

void Trainer::settle() {
  const RunSettings& settings = wish_.settings;
  const bool last = current_.step == current_.total_steps;
  const bool ends_epoch = current_.position.index == 0;
  const bool save_due = !last && settings.save_every.is_due(current_.step, current_.total_steps, ends_epoch);
  const bool eval_due = !last && settings.eval_every.is_due(current_.step, current_.total_steps, ends_epoch);
  if (parts_.evaluator != nullptr && !current_.eval_loss && (eval_due || (save_due && settings.best)))
    evaluate();
  const bool asked = take_save_request();
  if (asked) parts_.saves.log().event("signal", current_.step, {{"signal", "SIGUSR1"}});
  if (asked || save_due) save(asked ? " (SIGUSR1)" : "");
}

void Trainer::step() {
  parts_.saves.require_folder();
  const auto start = RunClock::now();
  Loader& loader = parts_.batches.loader();
  const double waited_before = loader.wait_seconds();
  const EffectiveBatch* batch = last_batch_ = loader.next();
  check_internal(batch != nullptr, "the loader ended before the run");
  StepMetrics metrics = next_step();
  metrics.data_wait = loader.wait_seconds() - waited_before;
  metrics.tokens = batch->tokens();
  whole_ = false;
  if (batch->target_tokens() > 0) compute(*batch, metrics);
  metrics.seconds = seconds_since(start);
  if (parts_.profile != nullptr) parts_.profile->step_done(metrics.seconds, metrics.data_wait);
  metrics.rss = resident_bytes();
  metrics.time = wall_time();
  finish_step(*batch, metrics);
  tell(metrics);
}

// A step that updated nothing does not count for the schedule, nor for the optimizer.
int64_t Trainer::updates() const {
  return current_.step - (current_.loss_scale ? current_.loss_scale->skipped_steps : 0);
}

StepMetrics Trainer::next_step() const {
  StepMetrics metrics;
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.step = current_.step + 1;
  metrics.learning_rate = wish_.settings.learning_rate.at(updates(), current_.total_steps);
  if (current_.loss_scale) metrics.loss_scale = current_.loss_scale->value;
  return metrics;
}

void Trainer::compute(const EffectiveBatch& batch, StepMetrics& metrics) {
  const auto done = parts_.step.run(batch, {.number = metrics.step,
                                            .learning_rate = metrics.learning_rate,
                                            .seed = wish_.settings.weights.seed,
                                            .update = updates() + 1,
                                            .loss_scale = metrics.loss_scale.value_or(1.0)});
  metrics.loss = done.loss;
  metrics.grad_norm = done.grad_norm;
  metrics.of_task = done.metrics;
  parts_.tally.add(batch, done);
}

void Trainer::finish_step(const EffectiveBatch& batch, const StepMetrics& metrics) {
  RunTally& tally = parts_.tally;
  std::exception_ptr unlogged;
  try {
    parts_.saves.log().step(metrics);
  } catch (const StoppedError&) {  // the step is done: what it did can be saved
    unlogged = std::current_exception();
  }
  if (const std::string told = tally.skipped.add(batch); !told.empty())
    wish_.observer.event(told, LogLevel::warn);
  tally.seen.add(batch);
  const StopRules::Verdict verdict = parts_.stop.weigh(metrics, batch);
  if (!verdict.lost.empty()) lose(metrics.step, batch, verdict.lost);
  if (batch.target_tokens() > 0) take_scale(metrics, batch);
  current_.step += 1;
  current_.position = batch.next;
  if (batch.target_tokens() > 0) current_.last_loss = metrics.loss;
  current_.eval_loss.reset();
  current_.eval_metrics.clear();
  whole_ = true;
  if (!verdict.unseen.empty()) throw StoppedError(verdict.unseen);
  if (unlogged) std::rethrow_exception(unlogged);
}

void Trainer::tell(const StepMetrics& metrics) {
  const double rate = static_cast<double>(metrics.tokens) / metrics.seconds;
  parts_.tally.times.add(metrics.seconds, rate);
  wish_.observer.step({current_.step, current_.total_steps, current_.last_loss, metrics.learning_rate, rate,
                       metrics.data_wait / metrics.seconds, metrics.rss,
                       metrics.seconds * static_cast<double>(current_.total_steps - current_.step)});
  if (wish_.observer.hears(LogLevel::debug)) wish_.observer.event(debug_words(metrics), LogLevel::debug);
  const std::string crowding = parts_.tally.crowding(wish_.cpu.threads);
  if (!crowding.empty() && !parts_.session.plan.request.target.own_memory)
    wish_.observer.event("note    " + crowding, LogLevel::warn);
}

void Trainer::take_scale(const StepMetrics& metrics, const EffectiveBatch& batch) {
  if (!current_.loss_scale) return;
  LossScale& scale = *current_.loss_scale;
  const bool overflowed = !std::isfinite(metrics.grad_norm);
  scale.take(overflowed);
  if (!overflowed) return;
  if (scale.value < LossScale::kLeast)
    lose(metrics.step, batch, "the gradients overflow fp16 however little the loss is scaled");
  wish_.observer.event(
      formatted("fp16    step {}: the gradients overflowed, nothing was updated; the loss scale is {} now",
                format_count(metrics.step), scale_text(scale.value)));
}

void Trainer::lose(int64_t step, const EffectiveBatch& batch, const std::string& reason) {
  whole_ = false;
  throw StoppedError(formatted("step {}: {}: the run stopped without saving\n  {}\n  {}", step, reason,
                               stopped_batch_words(batch, wish_.folder, step),
                               last_checkpoint_words(wish_.folder.path())));
}

void Trainer::evaluate() {
  parts_.evaluator->run(is_interrupted, current_, parts_.stop, parts_.saves.log(), wish_.observer);
}

// While the loss is above what it may be, no older checkpoint goes: it may be the last good one.
void Trainer::save(const std::string& why) {
  const bool rising = parts_.stop.rising();
  if (parts_.saves.holds(current_)) {
    if (!rising) parts_.saves.remove_old();  // the run that saved it may have stopped before
    return;
  }
  if (const auto weight = weight_not_finite(parts_.session.state); weight && last_batch_ != nullptr)
    lose(current_.step, *last_batch_, *weight + " holds NaN or infinity");
  parts_.saves.save(current_, why, rising);
}

ExitCode Trainer::stop_early() {
  wish_.observer.steps_end();
  parts_.saves.log().event("signal", current_.step, {{"signal", stop_request()}});
  save("");
  wish_.observer.event(formatted("stopped at step {} of {}; continue with --resume",
                                 format_count(current_.step), format_count(current_.total_steps)));
  write_run_json(wish_.folder, parts_.session.plan, record_of(parts_, current_, false), parts_.tally.times);
  return ExitCode::interrupted;
}

void Trainer::finish() {
  wish_.observer.steps_end();
  end_run(wish_, parts_, current_);
}

}  // namespace plimsoll
