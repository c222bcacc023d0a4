#include "train/run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/system_memory.h"
#include "base/units.h"
#include "calibrate/probe.h"
#include "cpu/threads.h"
#include "plan/search/run_time.h"
#include "prepare/asked_device.h"
#include "prepare/memory_budget.h"
#include "prepare/order_words.h"
#include "prepare/plan_run.h"
#include "prepare/planned_card.h"
#include "prepare/resume.h"
#include "prepare/schedule.h"
#include "recipe/effective.h"
#include "runs/identity.h"
#include "runs/model_card.h"
#include "runs/run_record.h"
#include "runs/seen_targets.h"
#include "runs/stopped_batch.h"
#include "runtime/cuda_device.h"
#include "runtime/emulated_device.h"
#include "runtime/run_memory.h"
#include "train/card_use.h"
#include "train/kept_rows.h"
#include "train/loss_guard.h"
#include "train/profile.h"
#include "train/references.h"
#include "train/run_output.h"
#include "train/run_programs.h"
#include "train/run_saves.h"
#include "train/run_signals.h"
#include "weights/adapter_start.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string kernels_of(DeviceChoice device, const CpuSettings& cpu) {
  const bool is_real = device == DeviceChoice::cuda && !known_card_here()->facts.emulated;
  if (is_real) return cuda_kernels_text(known_card_here()->facts);
  return device == DeviceChoice::emulated || device == DeviceChoice::cuda ? emulated_kernels_text()
                                                                          : kernels_text(cpu);
}

class TrainingRun {
 public:
  TrainingRun(const Recipe& recipe, const TrainOptions& options, RunFolder& folder, const CpuSettings& cpu,
              DataSetup data, Plan plan, std::vector<std::string> notes)
      : recipe_(recipe),
        options_(options),
        folder_(folder),
        output_(folder.path()),
        plan_(std::move(plan)),
        notes_(std::move(notes)),
        experiment_(plan_.request.workload.experiment),
        observer_(*options.observer),
        cpu_(cpu),
        goal_(recipe.save.best.value_or(std::string(kLossGoal))),
        guard_(recipe.stop.loss),
        patience_(recipe.stop),
        device_(open_device(recipe.device, recipe.cuda_card, cpu, plan_.request.target.device.card,
                            plan_.programs, observer_)),
        card_(*device_, resident_before_device_),
        memory_(*device_, plan_.layout, output_),
        state_(plan_.layout, memory_.arenas()),
        profile_(options.profile ? std::make_unique<Profile>(plan_) : nullptr),
        place_{plan_, *device_, memory_, options.poison, profile_ ? &profile_->recorder() : nullptr},
        optimizer_step_(place_),
        kept_(kept_rows_for(plan_, data)),
        references_(references_for(experiment_, data)),
        in_parts_(visits_in_parts(*data.train)),
        loader_(std::move(data.train->dataset), std::move(data.train->rows), std::move(data.train->encoder),
                profile_ ? profile_->recorded(data.train->loader) : data.train->loader),
        seen_(experiment_.task, data.labels) {
    card_.mapped(*device_);
    start_threads(cpu.threads);
    current_.kernels = kernels_of(recipe.device, cpu);
    current_.micro_batch = plan_.variant.micro_batch;
    current_.micro_tokens = plan_.variant.micro_tokens;
    current_.shares_prefixes = plan_.request.workload.experiment.shares_prefixes;
    current_.common_begin = plan_.request.workload.experiment.begin_once();
    current_.loss_chunk = plan_.variant.loss_chunk;
    if (experiment_.precision.scales_loss()) current_.loss_scale.emplace();
    if (in_parts_) seen_targets_.emplace(experiment_.task, experiment_.model.vocab);
    if (data.eval) eval_.emplace(place_, std::move(*data.eval));
    total_steps_ = data.total_steps;
    dropped_rows_ = data.dropped_rows;
    times_.reserve(total_steps_);
    current_.total_steps = total_steps_;
    if (data.chat) rendering_ = data.chat->published();
    const auto from = std::make_shared<SavedFrom>(recipe_.model, folder_.temporary("from-model"));
    const ModelSpec& model = experiment_.model;
    if (model.value_head && !experiment_.lora && !model.tied_head)
      from->head = ModelFolder::open(recipe_.model);
    describe_head({experiment_.task, experiment_.model, recipe_.classify.labels}, from->config);
    saves_.emplace(recipe_, experiment_, state_,
                   CheckpointOptions{&folder_, from, effective_yaml(recipe_), recipe_.save.keep,
                                     recipe_.save.best, rendering_},
                   observer_);
    current_.fingerprint = experiment_identity(recipe_);
    card_.bound(*device_);
  }

  ExitCode run() {
    for (const std::string& note : notes_) observer_.event(note, LogLevel::warn);
    observer_.event(plan_line(plan_, total_steps_));
    if (const std::string products = device_->products(); !products.empty())
      observer_.event("products by " + products);
    for (const std::string& line : row_lines(plan_)) observer_.event(line);
    if (dropped_rows_ > 0)
      observer_.event("rows    " + format_count(dropped_rows_) + " longer than " +
                      format_count(recipe_.data.max_length) + " tokens are left out (data.truncation: drop)");
    if (const std::string note = products_note(plan_); !note.empty()) observer_.event(note, LogLevel::warn);
    load();
    store_rows();
    const auto visit_evaluation = [this](const nlohmann::json& line) {
      const auto value = line.find(goal_);
      const bool known = value != line.end() && value->is_number();
      patience_.add_evaluation(known ? cost_of(goal_, value->get<double>()) : std::nan(""));
    };
    const auto visit = [this](const nlohmann::json& line) {
      if (!line["loss"].is_number()) return;
      guard_.add(line["loss"].get<double>());
      patience_.add_loss(line["loss"].get<double>());
    };
    // Everything is claimed and read: the old run may go.
    saves_->begin(current_, options_.overwrite, visit, visit_evaluation);
    saves_->log().event(current_.step > 0 ? "resume" : "start", current_.step,
                        start_details(plan_, current_));
    listen_to_stop_requests();
    if (profile_) profile_->start(total_steps_ - current_.step);
    start_ = Clock::now();
    const ExitCode end = [this] {
      try {
        return take_steps();
      } catch (const std::exception&) {
        saves_->stop(current_, state_whole_);
      }
    }();
    if (end == ExitCode::ok && experiment_.lora)
      require_model_unchanged(recipe_, current_.fingerprint, output_);
    return end;
  }

 private:
  // Before anything of an older run goes: a signal ends the process here, and the scratch file with it.
  void store_rows() {
    const auto start = Clock::now();
    loader_.store_rows(output_, [this](int64_t done, int64_t rows) { observer_.storing(done, rows); });
    if (const int64_t bytes = loader_.stored_bytes(); bytes > 0)
      observer_.event("rows    written to a scratch file for the shuffle: " + format_bytes(bytes) + " in " +
                      duration_words(seconds_since(start)));
  }

  // False where a stop was asked for.
  bool know_references() {
    if (references_ == nullptr) return true;
    references_->open(folder_, current_.fingerprint, current_.step > 0);
    if (!references_->are_complete() && !compute_references()) return false;
    references_->serve();
    return true;
  }

  // Values that a resumed run lacks are computed with the weights that it began with, which are still in the
  // model's folder: the checkpoint's come back afterwards.
  bool compute_references() {
    const auto interrupted = [] { return stop_request() != nullptr; };
    bool as_begun = current_.step == 0;
    if (as_begun)
      observer_.event(std::string("rows    what the model says of them before the first step: ") +
                      References::kFile);
    const auto begin = [&] {
      if (as_begun) return;
      as_begun = true;
      observer_.event(std::string("note    ") + References::kFile +
                          " lacks rows, or was changed: they are recomputed with the weights of " +
                          recipe_.model,
                      LogLevel::warn);
      state_whole_ = false;
      load_start();
    };
    if (!references_->compute(References::Of::train, place_, loader_, interrupted, begin)) return false;
    if (eval_ && !references_->compute(References::Of::eval, place_, eval_->loader(), interrupted, begin))
      return false;
    references_->complete();
    if (state_whole_) return true;
    load_checkpoint(*latest_checkpoint(output_), experiment_, state_);
    return state_whole_ = true;
  }

  // False where a stop was asked for.
  bool know_frozen() {
    if (kept_ == nullptr) return true;
    kept_->open(folder_, current_.fingerprint);
    if (!kept_->is_complete()) {
      observer_.event("rows    what the frozen blocks say of them, kept for all epochs (" +
                      format_bytes(plan_.kept_bytes) + "): " + KeptRows::kFile);
      if (!kept_->compute(place_, loader_, [] { return stop_request() != nullptr; })) return false;
    }
    optimizer_step_.begin_with(*kept_);
    return true;
  }

  ExitCode take_steps() {
    if (!know_references() || !know_frozen()) {
      observer_.event(std::string("stopped before ") + (current_.step > 0 ? "another" : "the first") +
                      " step; continue with --resume");
      return ExitCode::interrupted;
    }
    if (current_.step > 0) settle();
    loader_.start(current_.position);
    while (current_.step < total_steps_ && stop_request() == nullptr && !patience_.out_of_patience()) {
      step();
      settle();
    }
    if (patience_.out_of_patience())
      observer_.event("stop    step " + format_count(current_.step) + "  " + patience_words());
    if (stop_request() != nullptr && current_.step < total_steps_ && !patience_.out_of_patience())
      return stop_early();
    if (eval_ && !current_.eval_loss) evaluate();
    save("");
    finish();
    return ExitCode::ok;
  }

  // Frozen weights always come from the model folder; what trains comes from the checkpoint where there is
  // one.
  void load() {
    const auto checkpoint = options_.resume ? latest_checkpoint(output_) : std::nullopt;
    if (experiment_.lora || !checkpoint) load_start();
    if (checkpoint) {
      resume(*checkpoint);
      return;
    }
    if (options_.resume)
      observer_.event("note    " + output_.string() + " holds no checkpoint: starting at step 0",
                      LogLevel::warn);
    if (recipe_.adapter) {
      load_adapters(state_, *recipe_.adapter, FreshHead::stays);
    } else if (experiment_.lora) {
      init_adapters(state_, seed());
      start_adapters(state_, experiment_.lora_options, cpu_, seed());
    }
  }

  [[nodiscard]] uint64_t seed() const { return static_cast<uint64_t>(recipe_.seed); }

  // The weights that the run begins with, but for adapters.
  void load_start() {
    init_fresh_weights(state_, experiment_.model, seed());
    if (recipe_.init == Init::random) {
      init_base_weights(state_, experiment_.model, seed());
    } else {
      const auto show = [this](int64_t done, int64_t total) { observer_.loading(done, total); };
      load_base_weights(state_, recipe_.model, show, FreshHead::stays);
    }
  }

  void resume(const fs::path& checkpoint) {
    TrainerState saved = read_trainer_state(checkpoint);
    require_same_experiment(checkpoint, saved, current_, recipe_);
    if (!verify_checkpoint(checkpoint))
      observer_.event("note    " + checkpoint.string() + " has no checksums: an earlier version saved it");
    load_checkpoint(checkpoint, experiment_, state_);
    take_out_starts(state_, experiment_.lora_options);
    if (const std::string note = changed_bits_note(saved, current_); !note.empty())
      observer_.event(note, LogLevel::warn);
    if (const std::string note = skipped_steps_note(checkpoint, saved, plan_); !note.empty())
      observer_.event(note, LogLevel::warn);
    if (const std::string note = extension_note(recipe_, saved, current_); !note.empty())
      observer_.event(note, LogLevel::warn);
    observer_.event("resume  " + checkpoint.string());
    take_over(saved, current_);
    saves_->resumed(current_);
  }

  static std::string scale_text(double scale) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.6g", scale);
    return text.data();
  }

  // Does what is due after a step; after a resume, what the run had not come to.
  void settle() {
    const bool last = current_.step == total_steps_;
    const bool ends_epoch = current_.position.index == 0;
    const bool save_due = !last && recipe_.save.every.is_due(current_.step, total_steps_, ends_epoch);
    const bool eval_due = !last && recipe_.eval.every.is_due(current_.step, total_steps_, ends_epoch);
    if (eval_ && !current_.eval_loss && (eval_due || (save_due && recipe_.save.best))) evaluate();
    const bool asked = take_save_request();
    if (asked) saves_->log().event("signal", current_.step, {{"signal", "SIGUSR1"}});
    if (asked || save_due) save(asked ? " (SIGUSR1)" : "");
  }

  // One optimizer step over one effective batch.
  void step() {
    saves_->require_folder();
    const auto start = Clock::now();
    const double waited_before = loader_.wait_seconds();
    const EffectiveBatch* batch = last_batch_ = loader_.next();
    check_internal(batch != nullptr, "the loader ended before the run");
    StepMetrics metrics;
    metrics.loss = std::numeric_limits<double>::quiet_NaN();
    metrics.step = current_.step + 1;
    // A step that updated nothing does not count for the schedule, nor for the optimizer.
    const int64_t updates = current_.step - (current_.loss_scale ? current_.loss_scale->skipped_steps : 0);
    metrics.learning_rate = learning_rate(recipe_, updates, total_steps_);
    if (current_.loss_scale) metrics.loss_scale = current_.loss_scale->value;
    metrics.data_wait = loader_.wait_seconds() - waited_before;
    metrics.tokens = batch->tokens();
    state_whole_ = false;
    if (batch->target_tokens() > 0) {
      const auto done = optimizer_step_.run(*batch, {.number = metrics.step,
                                                     .learning_rate = metrics.learning_rate,
                                                     .seed = seed(),
                                                     .update = updates + 1,
                                                     .loss_scale = metrics.loss_scale.value_or(1.0)});
      metrics.loss = done.loss;
      metrics.grad_norm = done.grad_norm;
      metrics.of_task = done.metrics;
      micro_steps_ += done.micro_steps;
      tokens_ += batch->tokens();
      passed_ += done.tokens;
    }
    metrics.seconds = seconds_since(start);
    if (profile_) profile_->step_done(metrics.seconds, metrics.data_wait);
    metrics.rss = resident_bytes();
    metrics.time = wall_time();
    std::exception_ptr unlogged;
    try {
      saves_->log().step(metrics);
    } catch (const StoppedError&) {  // the step is done: what it did can be saved
      unlogged = std::current_exception();
    }
    if (const std::string told = skipped_.add(*batch); !told.empty()) observer_.event(told, LogLevel::warn);
    seen_.add(*batch);
    weigh_loss(metrics, *batch);
    if (batch->target_tokens() > 0) take_scale(metrics, *batch);
    current_.step += 1;
    current_.position = batch->next;
    if (batch->target_tokens() > 0) current_.last_loss = metrics.loss;
    current_.eval_loss.reset();
    current_.eval_metrics.clear();
    state_whole_ = true;
    if (!unseen_.empty()) throw StoppedError(unseen_);
    if (unlogged) std::rethrow_exception(unlogged);
    const double rate = static_cast<double>(metrics.tokens) / metrics.seconds;
    times_.add(metrics.seconds, rate);
    observer_.step({current_.step, total_steps_, current_.last_loss, metrics.learning_rate, rate,
                    metrics.data_wait / metrics.seconds, metrics.rss,
                    metrics.seconds * static_cast<double>(total_steps_ - current_.step)});
    if (observer_.hears(LogLevel::debug)) observer_.event(debug_words(metrics), LogLevel::debug);
    tell_crowding();
  }

  // Once, when steps have run for long enough to show it.
  void tell_crowding() {
    constexpr double kSeconds = 20;
    if (crowding_told_ || seconds_since(start_) < kSeconds) return;
    crowding_told_ = true;
    const std::string note = crowded_note(lost_.share(), cpu_.threads);
    if (!note.empty() && !plan_.request.target.own_memory) observer_.event("note    " + note, LogLevel::warn);
  }

  void weigh_loss(const StepMetrics& metrics, const EffectiveBatch& batch) {
    guard_.add(metrics.loss);
    patience_.add_loss(metrics.loss);
    if (seen_targets_) seen_targets_->add(batch, metrics.loss);
    check_loss(metrics, batch);
  }

  // A step without targets changed nothing, whatever its numbers.
  void check_loss(const StepMetrics& metrics, const EffectiveBatch& batch) {
    if (batch.target_tokens() == 0) return;
    // Gradients of f16 overflow where the loss is scaled too far: that is no lost loss.
    const bool finite =
        std::isfinite(metrics.loss) && (metrics.loss_scale || std::isfinite(metrics.grad_norm));
    if (finite && patience_.above())
      stop(metrics.step, batch,
           "the loss is above " + std::to_string(*recipe_.stop.above) + " in " +
               std::to_string(recipe_.stop.above_steps) + " steps in a row (stop.above)");
    if (finite && !guard_.diverged()) return;
    const std::string above = "the mean loss of " + std::to_string(LossGuard::kWindow) + " steps is " +
                              std::to_string(guard_.mean()) + ", above " + std::to_string(guard_.limit()) +
                              " (stop.loss)";
    const std::string unseen = finite && seen_targets_ ? seen_targets_->unseen(guard_.limit()) : "";
    if (!unseen.empty()) {
      unseen_ = unseen_words(metrics.step, above, unseen);
      return;
    }
    stop(metrics.step, batch,
         finite ? above
                : "the loss is " + std::to_string(std::fabs(metrics.loss)) + ", the gradient norm " +
                      std::to_string(std::fabs(metrics.grad_norm)));  // not "-nan"
  }

  // The model is as good as before, and its state is saved.
  [[nodiscard]] std::string unseen_words(int64_t step, const std::string& above,
                                         const std::string& unseen) const {
    return "step " + std::to_string(step) + ": " + above + ": " + unseen +
           ". The rows are sorted by something, and data.shuffle: " +
           (recipe_.data.shuffle == Shuffle::off ? "false" : "window") +
           " visits them in parts: the optimizer did not diverge\n  a new run with --set data.shuffle=full "
           "--overwrite mixes all kinds; --resume --set stop.loss=1e9 continues in this order";
  }

  void take_scale(const StepMetrics& metrics, const EffectiveBatch& batch) {
    if (!current_.loss_scale) return;
    LossScale& scale = *current_.loss_scale;
    const bool overflowed = !std::isfinite(metrics.grad_norm);
    scale.take(overflowed);
    if (!overflowed) return;
    if (scale.value < LossScale::kLeast)
      stop(metrics.step, batch, "the gradients overflow fp16 however little the loss is scaled");
    observer_.event("fp16    step " + format_count(metrics.step) +
                    ": the gradients overflowed, nothing was updated; the loss scale is " +
                    scale_text(scale.value) + " now");
  }

  // The state is lost with the loss: nothing of it is saved.
  [[noreturn]] void stop(int64_t step, const EffectiveBatch& batch, const std::string& reason) {
    state_whole_ = false;
    throw StoppedError("step " + std::to_string(step) + ": " + reason +
                       ": the run stopped without saving\n  " + stopped_batch_words(batch, folder_, step) +
                       "\n  " + last_checkpoint_words(output_));
  }

  void evaluate() {
    const auto start = Clock::now();
    const auto result = eval_->run([] { return stop_request() != nullptr; });  // made up for after a resume
    if (!result) return;
    current_.eval_loss = eval_loss_ = result->loss;
    for (const Metric& metric : result->metrics)
      current_.eval_metrics.emplace_back(metric.name, metric.value);
    patience_.add_evaluation(cost_of(goal_, current_.evaluated(goal_).value_or(std::nan(""))));
    saves_->log().evaluation(
        {current_.step, *eval_loss_, result->target_tokens, seconds_since(start), result->metrics});
    observer_.event("eval    step " + format_count(current_.step) + "  loss " + std::to_string(*eval_loss_) +
                    metric_words(result->metrics));
  }

  // While the loss is above what it may be, no older checkpoint goes: it may be the last good one.
  void save(const std::string& why) {
    if (saves_->holds(current_)) {
      if (!guard_.rising()) saves_->remove_old();  // the run that saved it may have stopped before
      return;
    }
    if (const auto weight = weight_not_finite(state_); weight && last_batch_ != nullptr)
      stop(current_.step, *last_batch_, *weight + " holds NaN or infinity");
    saves_->save(current_, why, guard_.rising());
  }

  ExitCode stop_early() {
    observer_.steps_end();
    saves_->log().event("signal", current_.step, {{"signal", stop_request()}});
    save("");
    observer_.event("stopped at step " + format_count(current_.step) + " of " + format_count(total_steps_) +
                    "; continue with --resume");
    write_run_json(folder_, plan_, record(false), times_);
    return ExitCode::interrupted;
  }

  [[nodiscard]] std::string patience_words() const {
    return std::to_string(recipe_.stop.patience) + " evaluations without " +
           (goal_ == kLossGoal ? "a lower loss" : "more " + goal_) + " (stop.patience)";
  }

  void finish() {
    observer_.steps_end();
    if (kept_ != nullptr) folder_.remove_log(KeptRows::kFile);
    const auto best = recipe_.save.best ? best_checkpoint(output_, goal_) : std::nullopt;
    publish_final(best ? *best : *latest_checkpoint(output_), folder_);
    RunRecord done = record(true);
    if (recipe_.device == DeviceChoice::cuda && !known_card_here()->facts.emulated)
      if (const std::string note = keep_measured(card_.measured(*done.card)); !note.empty())
        observer_.event("note    what this run saw of the card is not kept: " + note, LogLevel::warn);
    if (best) {
      const TrainerState of = read_trainer_state(*best);
      done.best = BestStep{of.step, *of.eval_loss, goal_, *of.evaluated(goal_)};
    }
    write_run_json(folder_, plan_, done, times_);
    write_model_card(folder_, model_card(recipe_, plan_, done));
    if (patience_.out_of_patience() && current_.step < total_steps_)
      saves_->log().event("end", current_.step, {{"reason", patience_words()}});
    else
      saves_->log().event("end", current_.step);
    if (profile_) observer_.result(profile_->write(folder_));
    const bool whole = !experiment_.lora || recipe_.init == Init::weights;
    report_end(observer_, output_, plan_, done, times_, whole);
    // Steps before a resume had rows too.
    if (times_.steps() == current_.step)
      if (const std::string told = seen_.missing(); !told.empty()) observer_.event(told, LogLevel::warn);
    if (recipe_.save.hub)
      observer_.event("        upload     hf upload " + *recipe_.save.hub + " " + output_.string());
  }

  RunRecord record(bool finished) {
    return {.finished = finished,
            .steps = current_.step,
            .seconds = seconds_since(start_),
            .final_loss = current_.last_loss,
            .eval_loss = eval_loss_ ? eval_loss_ : current_.eval_loss,
            .best = {},
            .device_bytes = memory_.device_bytes(),
            .host_bytes = memory_.host_bytes(),
            .disk_bytes = memory_.disk_bytes() + (kept_ != nullptr ? kept_->bytes() : 0),
            .scratch_bytes = loader_.stored_bytes(),
            .memory = process_memory(),
            .card = card_.now(*device_),
            .products = device_->products(),
            .data_wait_seconds = loader_.wait_seconds(),
            .offload_wait_seconds = memory_.seconds_waited(),
            .kernels = current_.kernels,
            .micro_steps = micro_steps_,
            .tokens = tokens_,
            .passed = passed_,
            .rows = skipped_.counts(),
            .loss_scale = current_.loss_scale};
  }

  Recipe recipe_;
  TrainOptions options_;
  RunFolder& folder_;
  fs::path output_;
  Plan plan_;
  std::vector<std::string> notes_;  // of planning
  const Experiment& experiment_;
  RunObserver& observer_;
  CpuSettings cpu_;
  std::string goal_;  // what the best evaluation is found by
  LossGuard guard_;
  PatienceGuard patience_;
  int64_t resident_before_device_ = resident_bytes();
  std::unique_ptr<Device> device_;
  CardUse card_;
  RunMemory memory_;
  PersistentState state_;
  std::unique_ptr<Profile> profile_;  // before those whose time it keeps
  RunPlace place_;
  OptimizerStep optimizer_step_;
  std::unique_ptr<KeptRows> kept_;
  std::unique_ptr<References> references_;  // before the loaders, which ask it
  bool in_parts_;                           // known before the loader takes the rows
  Loader loader_;
  const EffectiveBatch* last_batch_ = nullptr;  // the loader's, until the next step
  std::optional<RunEvaluation> eval_;
  std::optional<Template> rendering_;
  std::optional<RunSaves> saves_;
  TrainerState current_;
  int64_t total_steps_ = 0;
  bool state_whole_ = true;  // false within a step, and once the loss is lost
  int64_t dropped_rows_ = 0;
  int64_t micro_steps_ = 0, tokens_ = 0, passed_ = 0;  // of this process
  StepTimes times_;
  std::optional<double> eval_loss_;
  SkippedRows skipped_;
  std::optional<SeenTargets> seen_targets_;  // where the order may meet a kind of rows late
  std::string unseen_;                       // why the run stops with its state whole
  SeenClasses seen_;
  Clock::time_point start_;
  TimeLost lost_;
  bool crowding_told_ = false;
};

}  // namespace

ExitCode train(const Recipe& given, const TrainOptions& options) {
  std::vector<std::string> notes;
  const Recipe asked = recipe_to_train(given, options.resume, notes);
  // A run that was begun so continues.
  if (!options.resume || !latest_checkpoint(*asked.output)) require_base(asked);
  if (const std::string note = random_base_note(asked); !note.empty()) notes.push_back("note    " + note);
  listen_to_save_requests();
  RunFolder folder =
      open_output(asked, {options.recipe_file, options.resume, options.overwrite, options.profile});
  const CpuSettings cpu = cpu_settings(options.machine);
  const Resolved begun = resolve(asked, std::make_shared<ModelFiles>());
  const Resolved resolved = with_length(resolve_as(begun, as_begun(begun, options.resume)), cpu.threads);
  const Recipe& recipe = resolved.recipe;
  DataSetup data = open_data(
      resolved,
      {true, [&](int64_t done, int64_t rows) { options.observer->counting(done, rows); }, cpu.threads});
  data.total_steps = total_steps(recipe, *data.train, cpu.threads);
  if (const std::string note = begun_order_note(asked, recipe, data); !note.empty()) notes.push_back(note);
  AllowedPlan allowed = plan_run(resolved, cpu, data, {.reuse = !options.no_reuse}, options.resume, notes);
  return TrainingRun(allowed.recipe, options, folder, cpu, std::move(data), std::move(allowed.plan),
                     std::move(notes))
      .run();
}

}  // namespace plimsoll
