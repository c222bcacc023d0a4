#include "train/run.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "prepare/memory_budget.h"
#include "prepare/order_words.h"
#include "prepare/plan_run.h"
#include "prepare/planned_card.h"
#include "prepare/refused_plan.h"
#include "prepare/resume.h"
#include "recipe/effective.h"
#include "runs/identity.h"
#include "runs/run_record.h"
#include "runtime/cuda_device.h"
#include "runtime/emulated_device.h"
#include "train/run_output.h"
#include "train/run_signals.h"
#include "train/trainer.h"

namespace plimsoll {
namespace {

std::string kernels_of(DeviceChoice device, const CpuSettings& cpu) {
  const bool is_real = device == DeviceChoice::cuda && !known_card_here()->facts.emulated;
  if (is_real) return cuda_kernels_text(known_card_here()->facts);
  return device == DeviceChoice::emulated || device == DeviceChoice::cuda ? emulated_kernels_text()
                                                                          : kernels_text(cpu);
}

// Before the first step.
TrainerState state_before(const Recipe& recipe, const Plan& plan, const CpuSettings& cpu,
                          int64_t total_steps) {
  const Experiment& experiment = plan.request.workload.experiment;
  TrainerState state;
  state.kernels = kernels_of(recipe.device, cpu);
  state.micro_batch = plan.variant.micro_batch;
  state.micro_tokens = plan.variant.micro_tokens;
  state.shares_prefixes = experiment.shares_prefixes;
  state.common_begin = experiment.begin_once();
  state.loss_chunk = plan.variant.loss_chunk;
  if (experiment.precision.scales_loss()) state.loss_scale.emplace();
  state.total_steps = total_steps;
  state.fingerprint = experiment_identity(recipe);
  return state;
}

CheckpointOptions checkpoint_options(const Recipe& recipe, const Experiment& experiment, RunFolder& folder,
                                     const std::optional<ChatTemplate>& chat) {
  const auto from = std::make_shared<SavedFrom>(recipe.model, folder.temporary("from-model"));
  const ModelSpec& model = experiment.model;
  if (model.value_head && !experiment.lora && !model.tied_head) from->head = ModelFolder::open(recipe.model);
  describe_head({experiment.task, model, recipe.classify.labels}, from->config);
  return {&folder,
          from,
          effective_yaml(recipe),
          recipe.save.keep,
          recipe.save.best,
          chat ? std::optional(chat->published()) : std::nullopt};
}

struct Announced {
  std::vector<std::string> notes;  // of planning
  int64_t total_steps = 0, dropped_rows = 0, max_length = 0;
};

void announce(const Announced& run, const Session& session, RunObserver& observer) {
  for (const std::string& note : run.notes) observer.event(note, LogLevel::warn);
  observer.event(plan_line(session.plan, run.total_steps));
  if (const std::string products = session.device->products(); !products.empty())
    observer.event("products by " + products);
  for (const std::string& line : row_lines(session.plan)) observer.event(line);
  if (run.dropped_rows > 0)
    observer.event(formatted("rows    {} longer than {} tokens are left out (data.truncation: drop)",
                             format_count(run.dropped_rows), format_count(run.max_length)));
  if (const std::string note = products_note(session.plan); !note.empty())
    observer.event(note, LogLevel::warn);
}

nlohmann::ordered_json plan_details(const RunWish& wish, const Plan& plan, const TrainerState& before) {
  nlohmann::ordered_json line = {{"feasible", true},
                                 {"output", std::filesystem::absolute(wish.folder.path()).string()}};
  line.update(start_details(plan, before));
  return line;
}

// Opens what can fail, in the order in which each part takes what it needs, and runs.
ExitCode run_plan(const RunWish& wish, const Plan& plan, DataSetup data, const TrainOptions& options,
                  std::vector<std::string> notes) {
  const Recipe& recipe = wish.recipe;
  const Experiment& experiment = plan.request.workload.experiment;
  const ModelSpec& model = experiment.model;
  Session session =
      open_session(plan, {wish.cpu, recipe.device, recipe.cuda_card}, wish.folder.path(), wish.observer);
  const auto profile = options.profile ? std::make_unique<Profile>(plan) : nullptr;
  const RunPlace place{plan, *session.device, session.memory, options.poison,
                       profile ? &profile->recorder() : nullptr};
  OptimizerStep step(place);
  std::optional<SeenTargets> seen;
  if (visits_in_parts(*data.train)) seen.emplace(experiment.task, model.vocab);
  BatchSource batches(plan, data, profile.get());
  session.card.mapped(*session.device);
  start_threads(wish.cpu.threads);
  StopRules stop(recipe.stop, recipe.save.best.value_or(std::string(kLossGoal)), recipe.data.shuffle,
                 std::move(seen));
  std::optional<Evaluator> evaluator;
  if (data.eval) evaluator.emplace(place, std::move(*data.eval));
  RunTally tally(data.total_steps, experiment.task, data.labels);
  RunSaves saves({recipe.save.every, recipe.schedule.max_steps.has_value(), recipe.schedule.epochs,
                  recipe.log.tensorboard},
                 experiment, session.state, checkpoint_options(recipe, experiment, wish.folder, data.chat),
                 wish.observer);
  session.card.bound(*session.device);
  TrainerState before = state_before(recipe, plan, wish.cpu, data.total_steps);
  wish.observer.logged("plan", json_text(plan_details(wish, plan, before), -1));
  announce({std::move(notes), data.total_steps, data.dropped_rows, recipe.data.max_length}, session,
           wish.observer);
  return Trainer(wish,
                 {session, place, step, batches, evaluator ? &*evaluator : nullptr, stop, saves, tally,
                  profile.get()},
                 std::move(before))
      .run();
}

// A refusal takes the rows along.
AllowedPlan plan_or_refuse(const Resolved& resolved, const CpuSettings& cpu, DataSetup& data,
                           const TrainOptions& options, std::vector<std::string>& notes) {
  try {
    return plan_run(resolved, cpu, data, {.reuse = !options.no_reuse}, options.resume, notes);
  } catch (RefusedPlan& refused) {
    refused.data = std::make_shared<const DataSetup>(std::move(data));
    throw;
  }
}

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
  const Resolved begun = resolve(asked, options.models);
  const Resolved resolved = with_length(resolve_as(begun, as_begun(begun, options.resume)), cpu.threads);
  const Recipe& recipe = resolved.recipe;
  DataSetup data = open_data(
      resolved,
      {true, [&](int64_t done, int64_t rows) { options.observer->counting(done, rows); }, cpu.threads});
  data.total_steps = total_steps(recipe, *data.train, cpu.threads);
  if (const std::string note = begun_order_note(asked, recipe, data); !note.empty()) notes.push_back(note);
  AllowedPlan allowed = plan_or_refuse(resolved, cpu, data, options, notes);
  const Recipe& planned = allowed.recipe;
  const RunWish wish{
      .recipe = planned,
      .folder = folder,
      .weights = {planned.model, planned.adapter, planned.init, static_cast<uint64_t>(planned.seed)},
      .cpu = cpu,
      .resume = options.resume,
      .overwrite = options.overwrite,
      .observer = *options.observer};
  return run_plan(wish, allowed.plan, std::move(data), options, std::move(notes));
}

}  // namespace plimsoll
