#include "plan/search/graphs_of_plan.h"

#include <algorithm>
#include <utility>

#include "plan/search/micro_capacities.h"

namespace plimsoll {
double launch_gaps(const Plan& plan, TimeModel model) {
  const DeviceDescription& device = plan.request.target.device;
  if (device.launch_seconds == 0) return 0;
  double seconds = 0;
  for (const Graph& graph : plan.programs) {
    const double runs = runs_per_step(graph, plan.variant, model.filling());
    if (runs > 0 && plan.graphs_of(graph.name()) == 0)
      seconds += runs * launch_gap(graph, device, model.program_seconds(graph));
  }
  return seconds;
}

namespace {

// Programs that are run by themselves, as often as tokens are asked for.
std::vector<ProgramUse> uses_by_themselves(const Plan& plan) {
  TimeModel model(plan.request.target.device.rates);
  std::vector<ProgramUse> uses;
  for (const Graph& graph : plan.programs) {
    const double seconds = model.program_seconds(graph);
    uses.push_back({.seconds = seconds, .beside = seconds});
  }
  return uses;
}

std::vector<ProgramUse> uses_in_steps(const Plan& plan, TimeModel& model, double step_seconds) {
  std::vector<ProgramUse> uses;
  for (const Graph& graph : plan.programs) {
    const double runs = runs_per_step(graph, plan.variant, model.filling());
    ProgramUse& use = uses.emplace_back(use_of(graph, plan.variant, model.filling()));
    use.seconds = model.program_seconds(graph);
    use.beside = runs > 0 ? step_seconds / runs : use.seconds;
  }
  return uses;
}

void add_graphs(Plan& plan, const std::vector<ProgramUse>& uses, bool wanted, const char* why_not) {
  for (size_t i = 0; i < uses.size(); ++i) {
    PlannedGraphs& planned = plan.graphs.emplace_back(
        plan_graphs(plan.programs[i], plan.request.target.device, uses[i], plan.request.choices.graphs));
    if (!wanted && std::exchange(planned.graphs, 0) > 0) planned.why = why_not;
  }
}

}  // namespace

void set_graphs(Plan& plan, bool wanted, const char* why_not) {
  const Workload& workload = plan.request.workload;
  const DeviceDescription& device = plan.request.target.device;
  if (device.backend != Backend::gpu) return;
  if (workload.use == Use::generate) {
    plan.graphs.clear();
    return add_graphs(plan, uses_by_themselves(plan), wanted, why_not);
  }
  if (workload.use != Use::train) return;  // their programs run once
  TimeModel model(device.rates, filling_of(workload.experiment, workload.run, plan.variant));
  plan.seconds_per_step -= launch_gaps(plan, model);
  plan.graphs.clear();
  const double step_seconds = plan.seconds_per_step + launch_gaps(plan, model);
  add_graphs(plan, uses_in_steps(plan, model, step_seconds), wanted, why_not);
  plan.seconds_per_step += launch_gaps(plan, model);
}

void take_graphs(Plan& plan) {
  set_graphs(plan, true);
  if (plan.request.choices.graphs == UseGraphs::automatic && plan.graph_bytes() > 0 && !plan.fits())
    set_graphs(plan, false, "there is no memory for them");
}

}  // namespace plimsoll
