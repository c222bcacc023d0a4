// plimsoll doctor: why a run ended, and what to do next.
#include <filesystem>

#include "base/print.h"
#include "base/screen.h"
#include "cli/machine/doctor_input.h"
#include "cli/machine/doctor_plan.h"
#include "fleet/doctor/snapshot.h"

namespace plimsoll {
namespace {

struct DoctorArguments {
  std::string log;
  RecipeArguments recipe;
  bool json = false;
};

void answer_log(const DoctorArguments& arguments, const doctor::Evidence& evidence,
                const std::string& recipe) {
  doctor::Diagnosis diagnosis = doctor::diagnose(evidence);
  if (!recipe.empty()) {
    RecipeArguments planned = arguments.recipe;
    planned.path = recipe;
    plan_steps(planned, diagnosis);
  }
  print(arguments.json ? doctor::diagnosis_json(diagnosis, evidence)
                       : doctor::diagnosis_text(diagnosis, evidence, output_columns()));
}

void answer_snapshot(const DoctorArguments& arguments, const std::string& bytes) {
  const doctor::Snapshot snapshot = doctor::read_snapshot(bytes, arguments.log);
  doctor::Diagnosis diagnosis = doctor::diagnose(snapshot);
  if (!arguments.recipe.path.empty()) plan_steps(arguments.recipe, diagnosis);
  print(arguments.json ? doctor::snapshot_json(snapshot, diagnosis)
                       : doctor::snapshot_text(snapshot, diagnosis, output_columns()));
}

ExitCode run(const DoctorArguments& arguments) {
  if (arguments.log != "-" && std::filesystem::is_directory(arguments.log)) {
    const doctor::Evidence evidence = read_doctor_folder(arguments.log);
    const std::string own = (std::filesystem::path(arguments.log) / "recipe.yaml").string();
    const bool has_own = arguments.recipe.path.empty() && std::filesystem::is_regular_file(own);
    answer_log(arguments, evidence, has_own ? own : arguments.recipe.path);
    return ExitCode::ok;
  }
  const DoctorInput input = read_doctor_input(arguments.log);
  if (input.snapshot.empty()) {
    answer_log(arguments, input.evidence, arguments.recipe.path);
  } else {
    answer_snapshot(arguments, input.snapshot);
  }
  return ExitCode::ok;
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DoctorArguments>();
  arguments->recipe.no_probe = true;
  CLI::App* command = app.add_subcommand("doctor", "why a run ran out of memory, from any program's log");
  command
      ->add_option("log", arguments->log,
                   "a log, a memory snapshot of PyTorch (.pickle), or a run's folder; - reads standard input")
      ->required();
  command
      ->add_option(
          "--recipe", arguments->recipe.path,
          "plan the next steps for this recipe, Plimsoll's or another tool's; a run folder has its own")
      ->type_name("FILE");
  command->add_option("--set", arguments->recipe.sets, "key=value: set a key of the recipe (may be repeated)")
      ->type_name("KEY=VALUE");
  command->add_option("--as", arguments->recipe.as_tool, "tool and version that the recipe was written for")
      ->type_name("TOOL-VERSION");
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
