#include "prepare/run/run_input.h"

#include "prepare/memory_budget.h"
#include "prepare/order_words.h"
#include "prepare/refused_plan.h"
#include "prepare/resume.h"
#include "prepare/run/plan_run.h"
#include "prepare/run/run_output.h"

namespace plimsoll {
namespace {

AllowedPlan plan_or_refuse(const Resolved& resolved, const CpuSettings& cpu, DataSetup& data,
                           const RunOptions& options, std::vector<std::string>& notes) {
  try {
    return plan_run(resolved, cpu, data, {.reuse = !options.no_reuse}, options.resume, notes);
  } catch (RefusedPlan& refused) {
    refused.data = std::make_shared<const DataSetup>(std::move(data));
    throw;
  }
}

}  // namespace

RunInput prepare_run(const Recipe& given, const RunOptions& options) {
  std::vector<std::string> notes;
  const Recipe asked = recipe_to_train(given, options.resume, notes);
  // A run that was begun so continues.
  if (!options.resume || !latest_checkpoint(*asked.output)) require_base(asked);
  if (const std::string note = random_base_note(asked); !note.empty()) notes.push_back("note    " + note);
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
  return {RunSettings(allowed.recipe), std::move(folder), cpu,
          std::move(allowed.plan),     std::move(data),   std::move(notes)};
}

}  // namespace plimsoll
