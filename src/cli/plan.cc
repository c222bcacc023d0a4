#include <cstdio>

#include "cli/commands.h"
#include "train/allowed.h"

namespace plimsoll {
namespace {

struct PlanArguments {
  RecipeArguments recipe;
  std::string memory, host_memory, dump;
  std::string method, length;
  bool json = false;
};

// Shorthands are the recipe's keys under shorter names.
Recipe load(const PlanArguments& arguments) {
  RecipeArguments recipe = arguments.recipe;
  const auto set = [&](const char* key, const std::string& value) {
    if (!value.empty()) recipe.sets.push_back(std::string(key) + "=" + value);
  };
  set("memory.device", arguments.memory);
  set("memory.host", arguments.host_memory);
  set("method.type", arguments.method);
  set("data.max_length", arguments.length);
  return recipe.load();
}

ExitCode run(const PlanArguments& arguments) {
  const Recipe recipe = load(arguments);
  const CpuSettings cpu = cpu_settings(arguments.recipe.machine(recipe));
  std::optional<DataSetup> data;
  if (!recipe.data.train.empty()) data = open_data(recipe, read_experiment(recipe).model.vocab);
  const Plan plan = plan_allowed(recipe, cpu, data ? &*data : nullptr).plan;
  if (!arguments.dump.empty()) {
    std::fputs(dump(plan, arguments.dump).c_str(), stdout);
    return ExitCode::ok;
  }
  if (arguments.json) {
    std::fputs(report_json(plan).c_str(), stdout);
    return plan.fits() ? ExitCode::ok : ExitCode::does_not_fit;
  }
  if (!plan.fits()) throw DoesNotFitError(refusal_text(plan));
  std::fputs(report_text(plan).c_str(), stdout);
  return ExitCode::ok;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command =
      app.add_subcommand("plan", "exact bytes of a run, before it starts; exit 3 when it does not fit");
  arguments->recipe.add_to(*command, true);
  command->add_option("--memory", arguments->memory, "memory.device: a size, a share, or auto");
  command->add_option("--host-memory", arguments->host_memory, "memory.host: a size, a share, or auto");
  command->add_option("--method", arguments->method, "method.type: full or lora");
  command->add_option("--length", arguments->length, "data.max_length in tokens");
  command->add_flag("--json", arguments->json, "for machines: docs/json.md");
  command->add_option("--dump", arguments->dump,
                      "print graph, program, layout or table instead of the report");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
