#include "prepare/run/run_input.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/format.h"
#include "files/work_folder.h"
#include "prepare/memory_budget.h"
#include "prepare/order_words.h"
#include "prepare/planned_card.h"
#include "prepare/refused_plan.h"
#include "prepare/resume.h"
#include "prepare/run/plan_run.h"
#include "prepare/run/run_output.h"
#include "prepare/schedule.h"
#include "runs/rank_facts.h"

namespace plimsoll {
namespace {

AllowedPlan plan_or_refuse(const Resolved& resolved, const PlannedMachine& machine, DataSetup& data,
                           const RunOptions& options, std::vector<std::string>& notes) {
  try {
    return plan_run(resolved, machine, data, {.reuse = !options.no_reuse}, options.resume, *options.ranks,
                    notes);
  } catch (RefusedPlan& refused) {
    refused.data = std::make_shared<const DataSetup>(std::move(data));
    throw;
  }
}

// Seconds that a rank may keep the others waiting.
double silence_of(const RunInput& run) {
  constexpr double kLeast = 300, kSteps = 20;
  if (run.settings.stop.silence != kAuto) return static_cast<double>(run.settings.stop.silence);
  return std::max(kLeast, kSteps * run.plan.seconds_per_step);
}

void watch_run(RunRanks& ranks, const RunInput& run) {
  if (ranks.watch() == nullptr) return;
  ranks.watch()->set_silence(silence_of(run));
  ranks.watch()->set_last_words([output = run.folder.path()] {
    const auto last = latest_checkpoint(output);
    return last ? formatted("\n  the last checkpoint is whole: {}: --resume continues from there",
                            last->string())
                : std::string("\n  there is no checkpoint yet: the run begins again with --overwrite");
  });
}

// The process that holds the folder, as this one sees it.
std::string holder_of(const std::filesystem::path& folder) {
  std::ifstream lock(WorkFolder::inside(folder) / "lock");
  std::string holder;
  return lock >> holder ? holder : "none";
}

// The leading rank holds it, and all see that it does: on several machines it is shared.
RunFolder open_folder(const Recipe& requested, const RunOptions& options) {
  RunRanks& ranks = *options.ranks;
  std::optional<RunFolder> folder;
  ranks.by_leader([&] {
    folder.emplace(
        open_output(requested, {options.recipe_file, options.resume, options.overwrite, options.profile}));
    return std::string();
  });
  if (!folder) folder.emplace(RunFolder::of_other(*requested.output));
  if (!ranks.is_alone())
    ranks.require_same({{"output folder (the process that holds it)", holder_of(*requested.output)}});
  return std::move(*folder);
}

// Everything that a run is made of, before it claims anything. Of several ranks one holds the folder.
RunInput begin_run(const Recipe& requested, const RunOptions& options, std::vector<std::string> notes) {
  RunRanks& ranks = *options.ranks;
  const CpuSettings cpu = cpu_settings(options.machine);
  if (!ranks.is_alone())
    ranks.require_same(facts_of_recipe(requested, options.version, kernels_of(requested.device, cpu)));
  RunFolder folder = open_folder(requested, options);
  const Resolved begun = resolve(requested, options.models);
  const Resolved resolved = with_length(resolve_as(begun, as_begun(begun, options.resume)), cpu.threads);
  const Recipe& recipe = resolved.recipe;
  DataSetup data = open_data(
      resolved,
      {true, [&](int64_t done, int64_t rows) { options.observer->counting(done, rows); }, cpu.threads});
  data.total_steps = total_steps(recipe, *data.train, cpu.threads);
  if (const std::string note = begun_order_note(requested, recipe, data); !note.empty())
    notes.push_back(note);
  if (const std::string note = still_note(requested, data.total_steps); !note.empty())
    notes.push_back("note    " + note);
  if (const std::string note = unprinted_tools_note(data); !note.empty()) notes.push_back("note    " + note);
  AllowedPlan allowed = plan_or_refuse(resolved,
                                       {.cpu = cpu,
                                        .nodes = options.machine.nodes,
                                        .on_node = options.machine.on_node,
                                        .free_bytes = options.machine.free_bytes,
                                        .card_free_bytes = options.machine.card_free_bytes},
                                       data, options, notes);
  if (!ranks.is_alone())
    ranks.require_same(facts_of_plan(allowed.plan, data.total_steps, options.resume, *recipe.output));
  return {RunSettings(allowed.recipe), std::move(folder), cpu,
          std::move(allowed.plan),     std::move(data),   std::move(notes)};
}

}  // namespace

RunInput prepare_run(const Recipe& given, const RunOptions& options) {
  std::vector<std::string> notes;
  const Recipe requested = recipe_to_train(given, options.resume, notes);
  // A run that was begun so continues.
  if (!options.resume || !latest_checkpoint(*requested.output)) require_base(requested);
  if (const std::string note = random_base_note(requested); !note.empty()) notes.push_back("note    " + note);
  for (const std::string& note : unused_memory_notes(requested)) notes.push_back("note    " + note);
  RunInput run = options.ranks->together([&] { return begin_run(requested, options, std::move(notes)); });
  watch_run(*options.ranks, run);
  return run;
}

}  // namespace plimsoll
