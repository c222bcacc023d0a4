#include "train/run.h"

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "cpu/threads.h"
#include "plan/search/sent_bytes.h"
#include "prepare/order_words.h"
#include "prepare/planned_card.h"
#include "prepare/resume.h"
#include "runs/run_record.h"
#include "train/trainer.h"

namespace plimsoll {
namespace {

// Before the first step.
TrainerState state_before(const RunSettings& settings, const Plan& plan, const CpuSettings& cpu,
                          int64_t total_steps) {
  const Experiment& experiment = plan.request.workload.experiment;
  TrainerState state;
  state.kernels = kernels_of(settings.device, cpu);
  state.micro_batch = plan.variant.micro_batch;
  state.micro_tokens = plan.variant.micro_tokens;
  state.shares_prefixes = experiment.shares_prefixes;
  state.common_begin = experiment.begin_once();
  state.ranks = experiment.ranks;
  if (experiment.ranks > 1) state.shard = experiment.sharding().stage;
  state.reduces_each = plan.variant.accumulation > 1 && sent_bytes(plan).reduces_each;
  state.loss_chunk = plan.variant.loss_chunk;
  if (experiment.precision.scales_loss()) state.loss_scale.emplace();
  state.total_steps = total_steps;
  state.fingerprint = settings.recipe.fingerprint();
  return state;
}

CheckpointOptions checkpoint_options(const RunSettings& settings, const Experiment& experiment,
                                     RunFolder& folder, const std::optional<ChatTemplate>& chat) {
  const std::string& base = settings.weights.model;
  const auto from = std::make_shared<SavedFrom>(base, folder.temporary("from-model"));
  const ModelSpec& model = experiment.model;
  if (!experiment.lora) from->keep_weights(base, model);
  describe_head({experiment.task, model, settings.labels}, from->config);
  return {&folder,       from,          settings.recipe.yaml(),
          settings.keep, settings.best, chat ? std::optional(chat->published()) : std::nullopt};
}

// The options of a process that does not hold the run's folder: it decides when to save as the one does that holds it.
CheckpointOptions options_elsewhere(const RunSettings& settings) {
  CheckpointOptions options;
  options.best = settings.best;
  return options;
}

struct Announced {
  std::vector<std::string> notes;  // of planning
  int64_t total_steps = 0, dropped_rows = 0, max_length = 0;
  std::string copied;  // of what a saved model has in addition
};

void announce(const Announced& run, const Session& session, RunObserver& observer) {
  if (!run.copied.empty()) observer.event(run.copied);
  for (const std::string& note : run.notes) observer.event(note, LogLevel::warn);
  observer.event(plan_line(session.plan, run.total_steps));
  if (const std::string products = session.device->products(); !products.empty())
    observer.event("products by " + products);
  for (const std::string& line : row_lines(session.plan)) observer.event(line);
  if (run.dropped_rows > 0)
    observer.event(formatted("rows    {} longer than {} tokens are dropped (data.truncation: drop)",
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

// Options to watch a run: a profile of a few steps, for tests NaN where an owner died, and its processes.
struct Watched {
  bool profile = false, poison = false;
  RunRanks& ranks;
};

// Opens what can fail, in the order in which each part takes what it needs, and runs.
ExitCode run_plan(const RunWish& wish, RunInput& input, const Watched& watched) {
  const RunSettings& settings = wish.settings;
  const Plan& plan = input.plan;
  DataSetup& data = input.data;
  const Experiment& experiment = plan.request.workload.experiment;
  const ModelSpec& model = experiment.model;
  Session session = open_session(plan, {wish.cpu, settings.device, settings.cuda_card}, wish.folder.path(),
                                 wish.observer, watched.ranks);
  const auto profile = watched.profile ? std::make_unique<Profile>(plan) : nullptr;
  RunPlace place{
      plan,         *session.device, session.memory, watched.poison, profile ? &profile->recorder() : nullptr,
      watched.ranks};
  OptimizerStep step(place);
  place.sum = &step.sum();
  std::optional<SeenTargets> seen;
  if (visits_in_parts(*data.train)) seen.emplace(experiment.task, model.vocab);
  BatchSource batches(plan, data, profile.get());
  session.card.mapped(*session.device, step.exchange_bytes());
  start_threads(wish.cpu.threads);
  StopRules stop(settings.stop, settings.best.value_or(std::string(kLossGoal)), settings.shuffle,
                 std::move(seen));
  std::optional<Evaluator> evaluator;
  if (data.eval) evaluator.emplace(place, std::move(*data.eval));
  RunTally tally(data.total_steps, experiment.task, data.labels);
  CheckpointOptions saved = watched.ranks.leads()
                                ? checkpoint_options(settings, experiment, wish.folder, data.chat)
                                : options_elsewhere(settings);
  const std::string copied = saved.from ? copied_words(*saved.from, model) : "";
  RunSaves saves({settings.save_every, settings.has_max_steps, settings.epochs, settings.tensorboard},
                 experiment, session.state, std::move(saved), wish.observer, watched.ranks);
  session.card.bound(*session.device);
  TrainerState before = state_before(settings, plan, wish.cpu, data.total_steps);
  wish.observer.logged("plan", json_text(plan_details(wish, plan, before), -1));
  announce({std::move(input.notes), data.total_steps, data.dropped_rows, settings.max_length, copied},
           session, wish.observer);
  return Trainer(wish,
                 {session, place, step, batches, evaluator ? &*evaluator : nullptr, stop, saves, tally,
                  profile.get(), watched.ranks},
                 std::move(before))
      .run();
}

}  // namespace

ExitCode train(RunInput input, const RunOptions& options, bool poison) {
  const RunWish wish{.settings = input.settings,
                     .folder = input.folder,
                     .cpu = input.cpu,
                     .resume = options.resume,
                     .overwrite = options.overwrite,
                     .observer = *options.observer,
                     .begun = options.begun};
  return run_plan(wish, input, {options.profile, poison, *options.ranks});
}

}  // namespace plimsoll
