#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/crc32c.h"
#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "formats/load.h"
#include "ops/name_hash.h"
#include "prepare/resume.h"
#include "runs/stopped_batch.h"
#include "train/run_end.h"
#include "train/run_signals.h"
#include "weights/adapter_start.h"

namespace plimsoll {
namespace {

bool is_interrupted() { return stop_request() != nullptr; }

// The signal that this process had; another rank of its run may have had it.
std::string stop_words() {
  const char* const own = stop_request();
  return own != nullptr ? own : "SIGTERM";
}

// A hash of the numbers of its rows.
uint64_t rows_hash(const EffectiveBatch& batch) {
  uint64_t hash = kNameHashStart;
  for (int64_t sequence = 0; sequence < batch.sequences(); ++sequence)
    hash = name_hash(std::to_string(batch.row(sequence)), name_hash(",", hash));
  return hash;
}

// Ranks that begin with the same weights have the same ones after every step.
void require_same_weights(RunRanks& ranks, const PersistentState& state) {
  if (ranks.is_alone()) return;
  uint32_t weights = 0, states = 0;
  std::vector<std::byte> staging(static_cast<size_t>(kLoadStagingBytes));
  for (const TableRow& row : state.rows()) {
    if (row.is_piece()) continue;
    const bool is_weight = row.role == Role::trainable_weight || row.role == Role::master;
    if (!is_weight && row.role != Role::optimizer_state) continue;
    uint32_t& sum = is_weight ? weights : states;
    state.visit(row, staging, [&](int64_t, std::span<const std::byte> piece) { sum = crc32c(piece, sum); });
  }
  ranks.require_same({{"set of weights (their CRC-32C)", std::to_string(weights)},
                      {"set of optimizer states (their CRC-32C)", std::to_string(states)}});
}

// The rank that computed longest, and how much longer than the median (of two: than the other); -1 where it is alone.
std::pair<int64_t, double> slowest_of(std::span<const double> busy) {
  if (busy.size() < 2) return {-1, 0.0};
  std::vector<double> sorted(busy.begin(), busy.end());
  std::ranges::sort(sorted);
  const double usual = sorted[(sorted.size() - 1) / 2];
  const auto slowest = std::ranges::max_element(busy) - busy.begin();
  return {slowest, usual > 0 ? sorted.back() / usual - 1 : 0.0};
}

std::string scale_text(double scale) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", scale);
  return text.data();
}

}  // namespace

ExitCode Trainer::run() {
  parts_.ranks.together([this] {
    load();
    parts_.batches.store_rows(wish_.folder.path(), wish_.observer);
  });
  require_same_weights(parts_.ranks, parts_.session.state);
  parts_.ranks.together([this] {
    const Watch::Busy busy(parts_.ranks.watch());  // the old run's files may be many
    open_logs();
  });
  if (wish_.begun) wish_.begun();
  listen_to_stop_requests(!parts_.ranks.is_alone());
  if (parts_.profile != nullptr) parts_.profile->start(current_.total_steps - current_.step);
  parts_.tally.start = RunClock::now();
  const ExitCode end = [this] {
    try {
      return take_steps();
    } catch (const std::exception&) {
      stop_with_error();
    }
  }();
  if (end == ExitCode::ok && experiment().lora)
    wish_.settings.recipe.require_model_unchanged(current_.fingerprint, wish_.folder.path());
  return end;
}

// In a catch block: the other ranks get to know of its exception.
void Trainer::tell_ranks() {
  try {
    throw;
  } catch (const Error& error) {
    parts_.ranks.fail(error.code(), error.what());
  } catch (const std::exception& error) {
    parts_.ranks.fail(ExitCode::stopped, error.what());
  }
}

// Saves what there is, and lets the other ranks know: first, where a save takes all of them.
void Trainer::stop_with_error() {
  const Watch::Busy busy(parts_.ranks.watch());
  if (parts_.session.state.has_pieces()) tell_ranks();
  try {
    parts_.saves.stop(current_, whole_);
  } catch (const std::exception&) {
    tell_ranks();
    throw;
  }
}

bool Trainer::stops() const { return parts_.ranks.is_alone() ? is_interrupted() : stops_; }

void Trainer::meet(const EffectiveBatch* batch, bool reads_save_requests) {
  out_of_patience_ = parts_.stop.out_of_patience();
  if (parts_.ranks.is_alone()) return;
  if (reads_save_requests) save_requested_ = take_save_request();
  RankWord word;
  word.stops = is_interrupted() ? 1 : 0;
  word.saves = save_requested_ ? 1 : 0;
  word.ends = out_of_patience_ ? 1 : 0;
  word.rows = batch == nullptr ? 0 : rows_hash(*batch);
  word.busy = busy_;
  const RankWord all = parts_.ranks.meet(word);
  stops_ = all.stops != 0;
  save_requested_ = all.saves != 0;
  out_of_patience_ = all.ends != 0;
}

ExitCode Trainer::take_steps() {
  if (!fill_caches()) {
    wish_.observer.event(formatted("stopped before {} step; continue with --resume",
                                   current_.step > 0 ? "another" : "the first"));
    return ExitCode::interrupted;
  }
  parts_.session.memory.seal_shared();
  if (current_.step > 0) settle();
  parts_.batches.loader().start(current_.position);
  meet(nullptr, false);
  while (current_.step < current_.total_steps && !stops() && !out_of_patience_) {
    if (!step()) break;
    settle();
    meet(nullptr, false);
  }
  return end();
}

void Trainer::gather_ranks() {
  if (parts_.ranks.is_alone()) return;
  parts_.ranks.meet({});
  std::vector<RankRecord>& all = parts_.tally.ranks;
  all.resize(static_cast<size_t>(parts_.ranks.size()));
  const ProcessMemory memory = process_memory();
  all[static_cast<size_t>(parts_.ranks.group().rank())] = {memory.peak_rss,
                                                           memory.data,
                                                           parts_.session.memory.device_bytes(),
                                                           parts_.session.memory.shared_bytes(),
                                                           parts_.step.exchange_bytes(),
                                                           parts_.step.sent_bytes(),
                                                           parts_.tally.sending_seconds,
                                                           reader_->read_bytes()};
  parts_.ranks.group().all_gather(std::as_writable_bytes(std::span(all)));
}

ExitCode Trainer::end() {
  if (out_of_patience_)
    wish_.observer.event(
        formatted("stop    step {}  {}", format_count(current_.step), parts_.stop.patience_words()));
  const bool early = stops() && current_.step < current_.total_steps && !out_of_patience_;
  if (!early && parts_.evaluator != nullptr && !current_.eval_loss) evaluate();
  gather_ranks();
  ExitCode code = ExitCode::ok;
  {
    const Watch::Busy busy(parts_.ranks.watch());
    if (early) {
      code = stop_early();
    } else {
      save("");
      finish();
    }
  }
  parts_.ranks.meet({});
  return code;
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
  begin_adapters(wish_.settings.weights, experiment(), wish_.cpu, parts_.session.state, parts_.ranks,
                 reader());
}

void Trainer::load_start() {
  plimsoll::load_start(wish_.settings.weights, experiment(), parts_.session.state, wish_.observer, reader());
  parts_.ranks.together([] {});  // what one rank has written is there for those that share it
}

void Trainer::load_saved(const std::filesystem::path& checkpoint) {
  load_checkpoint(checkpoint, experiment(), parts_.session.state, reader());
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  const TrainerState saved = read_trainer_state(checkpoint);
  wish_.settings.recipe.require_same_experiment(checkpoint, saved, current_);
  const auto verify = [&] { return std::string(verify_checkpoint(checkpoint) ? "verified" : ""); };
  if (parts_.ranks.by_leader(verify).empty())
    wish_.observer.event(
        formatted("note    {} has no checksums: an earlier version saved it", checkpoint.string()));
  load_saved(checkpoint);
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
                                load_saved(*latest_checkpoint(wish_.folder.path()));
                                whole_ = true;
                              },
                          .interrupted = is_interrupted};
  Loader* evaluation = parts_.evaluator != nullptr ? &parts_.evaluator->loader() : nullptr;
  if (!parts_.batches.fill(with, evaluation)) return false;
  if (const FrozenCache* frozen = parts_.batches.frozen()) parts_.step.begin_with(*frozen);
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
  const bool requested =
      parts_.ranks.is_alone() ? take_save_request() : std::exchange(save_requested_, false);
  if (requested) parts_.saves.log().event("signal", current_.step, {{"signal", "SIGUSR1"}});
  if (requested || save_due) save(requested ? " (SIGUSR1)" : "");
}

bool Trainer::step() {
  parts_.saves.require_folder();
  const auto start = RunClock::now();
  Loader& loader = parts_.batches.loader();
  const double waited_before = loader.wait_seconds();
  const EffectiveBatch* batch = last_batch_ = loader.next();
  check_internal(batch != nullptr, "the loader ended before the run");
  double waited = 0;  // for other ranks, before the step
  if (!parts_.ranks.is_alone()) {
    const auto met = RunClock::now();
    meet(batch, false);
    waited = seconds_since(met);
    if (stops_) return false;
  }
  StepMetrics metrics = next_step();
  metrics.data_wait = loader.wait_seconds() - waited_before;
  metrics.tokens = batch->tokens();
  whole_ = false;
  sending_ = 0;
  if (batch->target_tokens() > 0) compute(*batch, metrics);
  metrics.seconds = seconds_since(start);
  sending_ += waited;
  parts_.tally.sending_seconds += waited;
  busy_ = metrics.seconds - metrics.data_wait - sending_;
  if (!parts_.ranks.is_alone()) {
    const auto [slowest, slower] = slowest_of(parts_.ranks.busy());
    metrics.ranks = {sending_, current_.step > 0 ? slowest : -1, slower};
  }
  if (parts_.profile != nullptr) parts_.profile->step_done(metrics.seconds, metrics.data_wait);
  metrics.rss = resident_bytes();
  metrics.time = wall_time();
  finish_step(*batch, metrics);
  meet(nullptr, true);
  tell(metrics);
  return true;
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
  sending_ = done.sending;
  parts_.tally.sending_seconds += done.sending;
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
  const StopRules::Verdict verdict = leads() ? parts_.stop.weigh(metrics, batch) : StopRules::Verdict{};
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
  const auto [slowest, slower] = slowest_of(parts_.ranks.busy());
  wish_.observer.step({current_.step, current_.total_steps, current_.last_loss, metrics.learning_rate, rate,
                       metrics.data_wait / metrics.seconds, metrics.rss,
                       metrics.seconds * static_cast<double>(current_.total_steps - current_.step),
                       sending_ / metrics.seconds, slowest, slower});
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
  // All ranks see the same overflow; the one that holds the folder reports it.
  if (scale.value < LossScale::kLeast && leads())
    lose(metrics.step, batch, "the gradients overflow fp16 even at the smallest loss scale");
  wish_.observer.event(
      formatted("fp16    step {}: the gradients overflowed, the update was skipped; the loss scale is now {}",
                format_count(metrics.step), scale_text(scale.value)));
}

void Trainer::lose(int64_t step, const EffectiveBatch& batch, const std::string& reason) {
  whole_ = false;
  throw StoppedError(formatted("step {}: {}: the run stopped without saving\n  {}\n  {}", step, reason,
                               stopped_batch_words(batch, wish_.folder, step),
                               last_checkpoint_words(wish_.folder.path())));
}

// Several ranks stop where they meet.
void Trainer::evaluate() {
  const auto never = [] { return false; };
  parts_.evaluator->run(parts_.ranks.is_alone() ? std::function<bool()>(is_interrupted) : never, current_,
                        parts_.stop, parts_.saves.log(), wish_.observer);
}

std::string Trainer::weight_not_finite_of_any() {
  const PersistentState& state = parts_.session.state;
  if (!experiment().sharding().weights())  // then they are whole at each rank
    return leads() ? weight_not_finite(state).value_or("") : "";
  const std::string own =
      parts_.ranks.together([&] { return weight_not_finite(state).value_or(std::string()); });
  const std::vector<std::string> found = gather_texts(parts_.ranks.group(), own);
  const auto first = std::ranges::find_if(found, [](const std::string& name) { return !name.empty(); });
  return first == found.end() ? "" : *first;
}

// While the loss is above what it may be, no older checkpoint goes: it may be the last good one.
void Trainer::save(const std::string& why) {
  const Watch::Busy busy(parts_.ranks.watch());
  const bool rising = parts_.stop.rising();
  if (parts_.saves.holds(current_)) {
    if (!rising) parts_.saves.remove_old();  // the run that saved it may have stopped before
    return;
  }
  if (last_batch_ != nullptr) {
    const std::string weight = weight_not_finite_of_any();
    if (!weight.empty() && leads())  // which holds the folder
      lose(current_.step, *last_batch_, weight + " holds NaN or infinity");
  }
  parts_.saves.save(current_, why, rising);
}

ExitCode Trainer::stop_early() {
  wish_.observer.steps_end();
  parts_.saves.log().event("signal", current_.step, {{"signal", stop_words()}});
  save("");
  wish_.observer.event(formatted("stopped at step {} of {}; continue with --resume",
                                 format_count(current_.step), format_count(current_.total_steps)));
  if (leads())
    write_run_json(wish_.folder, parts_.session.plan, record_of(parts_, current_, false), parts_.tally.times);
  return ExitCode::interrupted;
}

void Trainer::finish() {
  wish_.observer.steps_end();
  if (leads()) end_run(wish_, parts_, current_);
}

}  // namespace plimsoll
