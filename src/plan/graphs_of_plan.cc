#include "plan/graphs_of_plan.h"

#include <algorithm>
#include <utility>

#include "plan/micro_rooms.h"

namespace plimsoll {
namespace {

// Whether all micro-steps have as many rows, and as many with a label.
bool are_alike(const Filling& filling) {
  constexpr double kAll = 0.99;
  return filling.tokens > kAll && filling.targets > kAll;
}

}  // namespace

double launch_gaps(const Plan& plan, TimeModel model) {
  const DeviceDescription& device = plan.request.device;
  if (device.launch_seconds == 0) return 0;
  double seconds = 0;
  for (const Graph& graph : plan.programs) {
    const double runs = runs_per_step(graph, plan.variant, model.filling());
    if (runs > 0 && plan.graphs_of(graph.name()) == 0)
      seconds += runs * launch_gap(graph, device, model.program_seconds(graph));
  }
  return seconds;
}

void take_graphs(Plan& plan) {
  const PlanRequest& request = plan.request;
  if (request.device.backend != Backend::gpu) return;
  TimeModel model(request.device.rates, filling_of(request.experiment, request.run, plan.variant));
  const double step_seconds = plan.seconds_per_step;
  plan.seconds_per_step -= launch_gaps(plan, model);
  for (const Graph& graph : plan.programs) {
    // The first micro-step of a step overwrites gradients.
    const bool trains = graph.name() == kTrainProgram;
    const double seconds = model.program_seconds(graph);
    const double runs = runs_per_step(graph, plan.variant, model.filling());
    const ProgramUse use = {.graphs = trains && plan.variant.accumulation > 1 ? 2 : 1,
                            .repeats = graph.name() == kUpdateProgram || are_alike(model.filling()),
                            .seconds = seconds,
                            .beside = runs > 0 ? step_seconds / runs : seconds};
    plan.graphs.push_back(plan_graphs(graph, request.device, use, request.graphs));
  }
  if (request.graphs == UseGraphs::automatic && !plan.fits())
    for (PlannedGraphs& one : plan.graphs)
      if (std::exchange(one.graphs, 0) > 0) one.why = "there is no room for them";
  plan.seconds_per_step += launch_gaps(plan, model);
}

std::optional<Plan> with_graphs(const PlanRequest& given,
                                const std::function<std::optional<Plan>(const Budget&)>& make) {
  constexpr int kTries = 4;  // other variants have other programs
  std::optional<Plan> plan = make(given.budget);
  int64_t reserved = 0;
  for (int i = 0; i < kTries && given.graphs == UseGraphs::on && plan; ++i) {
    if (plan->graph_bytes() <= reserved) break;
    reserved = plan->graph_bytes();
    Budget left = given.budget;
    for (std::optional<int64_t>* const bytes : {&left.device_bytes, &left.process_bytes})
      if (*bytes) *bytes = std::max<int64_t>(0, **bytes - reserved);
    plan = make(left);
  }
  if (plan) plan->request.budget = given.budget;
  return plan;
}

}  // namespace plimsoll
