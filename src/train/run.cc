#include "train/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/strings.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "io/atomic.h"
#include "io/run_lock.h"
#include "recipe/effective.h"
#include "recipe/load.h"
#include "runtime/run_memory.h"
#include "train/allowed.h"
#include "train/batch_writer.h"
#include "train/checkpoint.h"
#include "train/fitting_plan.h"
#include "train/metrics.h"
#include "train/profile.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/schedule.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

volatile std::sig_atomic_t stop_requested = 0;

// SIGINT and SIGTERM let the step finish; a second one ends the process as usual.
void listen_to_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// A limit on the size of files (ulimit -f) is an error with a message, not the end of the process.
void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

class TrainingRun {
 public:
  TrainingRun(const Recipe& recipe, const TrainOptions& options, const CpuSettings& cpu, DataSetup data,
              Plan plan, std::string shortage)
      : recipe_(recipe),
        options_(options),
        output_(*recipe.output),
        plan_(std::move(plan)),
        shortage_(std::move(shortage)),
        experiment_(plan_.request.experiment),
        lock_(output_),
        progress_(options.quiet, recipe.log.every),
        device_(cpu),
        memory_(device_, plan_.layout, output_),
        state_(plan_.layout, memory_.arenas()),
        profile_(options.profile ? std::make_unique<Profile>(plan_) : nullptr),
        train_(bind(kTrainProgram)),
        batch_(plan_.variant.micro_batch, experiment_.max_length),
        loader_(std::move(data.train->dataset), std::move(data.train->rows), std::move(data.train->encoder),
                profile_ ? profile_->recorded(data.train->loader) : data.train->loader) {
    start_threads(cpu.threads);
    if (!plan_.variant.update_in_backward) update_.emplace(bind(kUpdateProgram));
    kernels_ = kernels_text(cpu);
    if (data.eval) {
      eval_.emplace(bind(kEvalProgram));
      eval_batch_.emplace(plan_.variant.eval_micro_batch, experiment_.max_length);
      eval_loader_.emplace(std::move(data.eval->dataset), std::move(data.eval->rows),
                           std::move(data.eval->encoder), data.eval->loader);
    }
    total_steps_ = recipe_.schedule.epochs * loader_.steps_per_epoch();
    if (recipe_.schedule.max_steps) total_steps_ = *recipe_.schedule.max_steps;
    for (auto* values : {&rates_, &step_seconds_}) values->reserve(static_cast<size_t>(total_steps_));
    checkpoints_ = {output_, recipe_.model, effective_yaml(recipe_), recipe_.save.keep};
    current_.fingerprint = experiment_fingerprint(recipe_);
  }

  ExitCode run() {
    // Arenas and disk are claimed: from here on the old run is not needed any more.
    if (options_.overwrite) clear_run(output_);
    if (!shortage_.empty()) progress_.event(shortage_);
    progress_.event("plan    device " + format_bytes(plan_.arena_bytes()) + " · host " +
                    format_bytes(plan_.host_bytes()) + " · " + std::to_string(plan_.variant.micro_batch) +
                    " x " + std::to_string(plan_.variant.accumulation) + " = " +
                    std::to_string(experiment_.effective_batch) + " · " + format_count(total_steps_) +
                    " steps" +
                    (plan_.request.lossy.empty() ? "" : " · lossy: " + join(plan_.request.lossy, ", ")));
    if (experiment_.precision.compute == DType::bf16 && plan_.request.device.isa < Isa::avx512_bf16)
      progress_.event("note    no bf16 products with " + std::string(to_string(plan_.request.device.isa)) +
                      ": bf16 values are multiplied as f32");
    load();
    write_file_atomically(output_ / "recipe.yaml", checkpoints_.recipe_yaml);
    MetricsLog log(output_, current_.step);
    listen_to_signals();
    if (profile_) profile_->start(total_steps_ - current_.step);
    start_ = Clock::now();
    loader_.start(current_.position);
    while (current_.step < total_steps_ && stop_requested == 0) {
      step(log);
      const bool last = current_.step == total_steps_;
      if (recipe_.eval.every > 0 && current_.step % recipe_.eval.every == 0 && !last) evaluate(log);
      if (recipe_.save.every > 0 && current_.step % recipe_.save.every == 0 && !last) save();
    }
    if (stop_requested != 0 && current_.step < total_steps_) return stop_early();
    if (eval_) evaluate(log);
    save();
    finish();
    return ExitCode::ok;
  }

 private:
  Executor bind(const char* program) {
    for (size_t i = 0; i < plan_.programs.size(); ++i) {
      if (plan_.programs[i].name() != program) continue;
      return Executor(
          plan_.programs[i], plan_.layout.programs[i], device_, memory_.arenas(),
          {.poison = options_.poison,
           .recorder = profile_ && plan_.programs[i].name() != kEvalProgram ? &profile_->recorder() : nullptr,
           .program = static_cast<int32_t>(i)});
    }
    throw InternalError(std::string("the plan has no program ") + program);
  }

  // Frozen weights always come from the model folder; what trains comes from the checkpoint where there is
  // one.
  void load() {
    const auto checkpoint = options_.resume ? latest_checkpoint(output_) : std::nullopt;
    const auto seed = static_cast<uint64_t>(recipe_.seed);
    const auto show = [this](int64_t done, int64_t total) { progress_.loading(done, total); };
    if (experiment_.lora || !checkpoint) {
      if (recipe_.init == Init::random) {
        init_base_weights(state_, experiment_.model, seed);
      } else {
        load_base_weights(state_, recipe_.model, show);
      }
    }
    if (checkpoint) {
      resume(*checkpoint);
      return;
    }
    if (options_.resume)
      progress_.event("note    " + output_.string() + " holds no checkpoint: starting at step 0");
    if (recipe_.adapter) {
      load_adapters(state_, *recipe_.adapter);
    } else if (experiment_.lora) {
      init_adapters(state_, seed);
    }
  }

  void resume(const fs::path& checkpoint) {
    TrainerState saved = read_trainer_state(checkpoint);
    const auto differences = experiment_differences(saved.fingerprint, current_.fingerprint);
    if (!differences.empty()) {
      std::string text = checkpoint.string() + ": belongs to another experiment:";
      for (const auto& difference : differences)
        text += "\n  " + difference.key + " was " + difference.a + ", the recipe says " + difference.b;
      throw UsageError(text + "\n  start anew with --overwrite, or set these keys back");
    }
    load_checkpoint(checkpoint, experiment_, state_);
    if (saved.kernels != kernels_)
      progress_.event("note    saved with " + saved.kernels + ", going on with " + kernels_ +
                      ": the same experiment, but not the same last bits");
    progress_.event("resume  " + checkpoint.string());
    current_ = std::move(saved);
  }

  // One optimizer step over one effective batch.
  void step(MetricsLog& log) {
    const auto start = Clock::now();
    const double waited_before = loader_.wait_seconds();
    const EffectiveBatch* batch = loader_.next();
    check_internal(batch != nullptr, "the loader ended before the run");
    StepMetrics metrics;
    metrics.step = current_.step + 1;
    metrics.learning_rate = learning_rate(recipe_, current_.step, total_steps_);
    metrics.data_wait = loader_.wait_seconds() - waited_before;
    metrics.tokens = batch->tokens();
    if (batch->target_tokens() > 0) {
      accumulate(*batch, metrics.learning_rate);
      if (update_) update(metrics.learning_rate);
      const auto loss = train_.tensor<double>(kLossTensor);
      metrics.loss = loss[0] / loss[1];
      metrics.grad_norm = (update_ ? *update_ : train_).tensor<double>(kGradNormTensor)[0];
    }
    metrics.seconds = seconds_since(start);
    if (profile_) profile_->step_done(metrics.seconds, metrics.data_wait);
    log.step(metrics);
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm)) stop_diverged(metrics);
    current_.step += 1;
    current_.position = batch->next;
    current_.last_loss = metrics.loss;
    const double rate = static_cast<double>(metrics.tokens) / metrics.seconds;
    if (rates_.size() < rates_.capacity()) {
      rates_.push_back(rate);
      step_seconds_.push_back(metrics.seconds);
    }
    progress_.update({current_.step, total_steps_, metrics.loss, metrics.learning_rate, rate,
                      metrics.data_wait / metrics.seconds, plan_.arena_bytes()});
  }

  // The rate is for updates in the backward pass.
  void accumulate(const EffectiveBatch& batch, double rate) {
    BatchWriter writer(train_, experiment_.model);
    const int64_t micro_steps = batch.micro_steps(plan_.variant.micro_batch);
    for (int64_t i = 0; i < micro_steps; ++i) {
      batch.fill(i, batch_);
      writer.write(batch_);
      writer.set(StepValue::first_micro_step, i == 0 ? 1.0 : 0.0);
      // Inputs share the transient arena with everything else: all of them are written before each run.
      writer.set_seed(static_cast<uint64_t>(recipe_.seed));
      writer.set(StepValue::optimizer_step, static_cast<double>(current_.step + 1));
      writer.set(StepValue::learning_rate, rate);
      writer.set(StepValue::loss_scale, 1.0 / static_cast<double>(batch.target_tokens()));
      train_.run();
    }
  }

  void update(double rate) {
    const auto step = update_->tensor<double>(kStepTensor);
    const auto seed = static_cast<uint64_t>(recipe_.seed);
    step[static_cast<size_t>(StepValue::learning_rate)] = rate;
    step[static_cast<size_t>(StepValue::optimizer_step)] = static_cast<double>(current_.step + 1);
    step[static_cast<size_t>(StepValue::seed_low)] = static_cast<double>(seed & 0xFFFFFFFFU);
    step[static_cast<size_t>(StepValue::seed_high)] = static_cast<double>(seed >> 32);
    update_->run();
  }

  [[noreturn]] void stop_diverged(const StepMetrics& metrics) {
    progress_.finish();
    throw StoppedError("step " + std::to_string(metrics.step) + ": the loss is " +
                       std::to_string(metrics.loss) + ", the gradient norm " +
                       std::to_string(metrics.grad_norm) +
                       ": the run stopped without saving; earlier checkpoints are intact. Try a lower "
                       "optimizer.lr");
  }

  void evaluate(MetricsLog& log) {
    const auto start = Clock::now();
    eval_loader_->start({});
    bool first = true;
    BatchWriter writer(*eval_, experiment_.model);
    while (const EffectiveBatch* batch = eval_loader_->next()) {
      const int64_t micro_steps = batch->micro_steps(plan_.variant.eval_micro_batch);
      for (int64_t i = 0; i < micro_steps; ++i) {
        batch->fill(i, *eval_batch_);
        writer.write(*eval_batch_);
        writer.set(StepValue::first_micro_step, first ? 1.0 : 0.0);
        first = false;
        eval_->run();
      }
    }
    const auto sums = eval_->tensor<double>(kEvalLossTensor);
    if (sums[1] <= 0) return;
    eval_loss_ = sums[0] / sums[1];
    log.evaluation(current_.step, *eval_loss_, static_cast<int64_t>(sums[1]), seconds_since(start));
    progress_.event("eval    step " + format_count(current_.step) + "  loss " + std::to_string(*eval_loss_));
  }

  void save() {
    current_.kernels = kernels_;
    current_.total_steps = total_steps_;
    save_checkpoint(checkpoints_, experiment_, state_, current_);
    progress_.event("save    step " + format_count(current_.step));
  }

  ExitCode stop_early() {
    progress_.finish();
    save();
    progress_.event("stopped at step " + format_count(current_.step) + " of " + format_count(total_steps_) +
                    "; go on with --resume");
    write_run_json(false);
    return ExitCode::interrupted;
  }

  void finish() {
    progress_.finish();
    publish_final(*latest_checkpoint(output_), output_);
    const ProcessMemory memory = write_run_json(true);
    if (profile_) profile_->write(output_ / "trace.json");
    const double per_step = rates_.empty() ? 0 : elapsed_ / static_cast<double>(rates_.size());
    const auto row = [](const char* what, int64_t device, int64_t process, double seconds) {
      return std::string("        ") + what + "   device " + format_bytes(device) + " (" +
             format_count(device) + " bytes)   process " + format_bytes(process) + "   " +
             format_seconds(seconds) + " a step";
    };
    progress_.event("done    " + format_count(total_steps_) + " steps in " + format_seconds(elapsed_) +
                    " · loss " + std::to_string(current_.last_loss) +
                    (eval_loss_ ? " · eval " + std::to_string(*eval_loss_) : "") + " · " + output_.string());
    progress_.event(row("planned ", plan_.arena_bytes(), plan_.process_peak_bytes(), plan_.seconds_per_step));
    progress_.event(row("measured", memory_.device_bytes(), memory.peak_rss, per_step));
    progress_.event("        next       plimsoll generate " + output_.string());
  }

  ProcessMemory write_run_json(bool finished) {
    elapsed_ = seconds_since(start_);
    const ProcessMemory memory = process_memory();
    const nlohmann::ordered_json json = {
        {"finished", finished},
        {"planned",
         {{"device_arena_bytes", plan_.arena_bytes()},
          {"host_arena_bytes", plan_.host_arena_bytes()},
          {"disk_bytes", plan_.disk_bytes()},
          {"process_peak_rss_bytes", plan_.process_peak_bytes()},
          {"process_data_bytes", plan_.data_bytes()},
          {"seconds_per_step", plan_.seconds_per_step}}},
        {"measured",
         {{"device_arena_bytes", memory_.device_bytes()},
          {"host_arena_bytes", memory_.host_bytes()},
          {"disk_bytes", memory_.disk_bytes()},
          {"process_peak_rss_bytes", memory.peak_rss},
          {"process_data_bytes", memory.data},
          {"seconds_per_step", median_after_warmup(step_seconds_)}}},
        {"steps", current_.step},
        {"tokens_per_second", median_after_warmup(rates_)},
        {"seconds", elapsed_},
        {"final_loss", current_.last_loss},
        {"eval_loss", eval_loss_ ? nlohmann::ordered_json(*eval_loss_) : nlohmann::ordered_json(nullptr)},
        {"data_wait_seconds", loader_.wait_seconds()},
        {"offload_wait_seconds", memory_.seconds_waited()},
        {"variant",
         {{"micro_batch", plan_.variant.micro_batch},
          {"accumulation", plan_.variant.accumulation},
          {"loss_chunk", plan_.variant.loss_chunk}}},
        {"lossy", plan_.request.lossy},
        {"kernels", kernels_}};
    write_file_atomically(output_ / "run.json", json.dump(2) + "\n");
    return memory;
  }

  Recipe recipe_;
  TrainOptions options_;
  fs::path output_;
  Plan plan_;
  std::string shortage_;
  const Experiment& experiment_;
  RunLock lock_;
  Progress progress_;
  CpuDevice device_;
  RunMemory memory_;
  PersistentState state_;
  std::unique_ptr<Profile> profile_;  // before those whose time it keeps
  Executor train_;
  std::optional<Executor> update_;  // unless it is a part of the backward pass
  MicroBatch batch_;
  Loader loader_;
  std::optional<Executor> eval_;
  std::optional<MicroBatch> eval_batch_;
  std::optional<Loader> eval_loader_;
  CheckpointOptions checkpoints_;
  TrainerState current_;
  std::string kernels_;
  int64_t total_steps_ = 0;
  std::vector<double> rates_, step_seconds_;  // tokens per second, and seconds, of each step
  std::optional<double> eval_loss_;
  Clock::time_point start_;
  double elapsed_ = 0;
};

}  // namespace

ExitCode train(const Recipe& recipe, const TrainOptions& options) {
  require_trainable(recipe);
  ignore_file_size_signal();
  const fs::path output = *recipe.output;
  if (holds_run(output) && !options.resume && !options.overwrite) {
    throw UsageError("output: " + output.string() +
                     " holds a run already; go on with it by --resume, or replace it by --overwrite");
  }
  const CpuSettings cpu = cpu_settings(options.machine);
  const ModelSpec model = read_model_spec(fs::path(recipe.model) / "config.json");
  DataSetup data = open_data(recipe, model.vocab);
  AllowedPlan allowed = plan_allowed(recipe, cpu, &data, {.reuse = !options.no_reuse});
  require_fit(allowed.plan);
  // Before the arenas exist: it plans once more, which takes memory of its own.
  std::string shortage = shortage_text(allowed.plan);
  return TrainingRun(allowed.recipe, options, cpu, std::move(data), std::move(allowed.plan),
                     std::move(shortage))
      .run();
}

}  // namespace plimsoll
