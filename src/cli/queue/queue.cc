// plimsoll queue: many runs on few devices.
#include "base/print.h"
#include "base/units.h"
#include "cli/queue/queue_commands.h"
#include "files/file.h"
#include "fleet/queue/packing/simulation.h"

namespace plimsoll {
namespace {

constexpr int64_t kMostBytes = 64 * kMiB;  // of a workload: some 500,000 jobs

struct SimulateArguments {
  std::string workload;
  bool json = false;
};

ExitCode run_simulate(const SimulateArguments& arguments) {
  const queue::Workload workload =
      queue::read_workload(read_text(arguments.workload, kMostBytes), arguments.workload);
  std::vector<queue::Outcome> outcomes;
  for (const queue::Policy policy : {queue::Policy::packed, queue::Policy::polled, queue::Policy::one_a_card})
    outcomes.push_back(queue::simulate(workload, policy));
  print(arguments.json ? queue::simulation_json(workload, outcomes)
                       : queue::simulation_text(workload, outcomes));
  return ExitCode::ok;
}

void add_simulate(CLI::App& group, Action& action) {
  auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* command = group.add_subcommand("simulate", "simulate a workload, compared with other policies");
  command->add_option("workload", arguments->workload, "machine and jobs, as JSON: docs/howto/queue.md")
      ->required();
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->callback([arguments, &action] { action = [arguments] { return run_simulate(*arguments); }; });
}

}  // namespace

void add_queue(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("queue", "many jobs on few devices, packed by their planned memory");
  group->require_subcommand(1);
  add_queue_add(*group, action);
  add_queue_run(*group, action);
  add_queue_unit(*group, action);
  add_queue_supervise(*group, action);
  add_queue_list(*group, action);
  add_queue_show(*group, action);
  add_queue_logs(*group, action);
  add_queue_steering(*group, action);
  add_simulate(*group, action);
}

}  // namespace plimsoll
