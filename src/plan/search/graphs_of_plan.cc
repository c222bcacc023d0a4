#include "plan/search/graphs_of_plan.h"

#include <algorithm>
#include <utility>

#include "plan/search/micro_rooms.h"

namespace plimsoll {
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

void set_graphs(Plan& plan, bool wanted, const char* why_not) {
  const PlanRequest& request = plan.request;
  if (request.device.backend != Backend::gpu) return;
  TimeModel model(request.device.rates, filling_of(request.experiment, request.run, plan.variant));
  plan.seconds_per_step -= launch_gaps(plan, model);
  plan.graphs.clear();
  const double step_seconds = plan.seconds_per_step + launch_gaps(plan, model);
  for (const Graph& graph : plan.programs) {
    const double runs = runs_per_step(graph, plan.variant, model.filling());
    ProgramUse use = use_of(graph, plan.variant, model.filling());
    use.seconds = model.program_seconds(graph);
    use.beside = runs > 0 ? step_seconds / runs : use.seconds;
    PlannedGraphs& planned =
        plan.graphs.emplace_back(plan_graphs(graph, request.device, use, request.graphs));
    if (!wanted && std::exchange(planned.graphs, 0) > 0) planned.why = why_not;
  }
  plan.seconds_per_step += launch_gaps(plan, model);
}

void take_graphs(Plan& plan) {
  set_graphs(plan, true);
  if (plan.request.graphs == UseGraphs::automatic && plan.graph_bytes() > 0 && !plan.fits())
    set_graphs(plan, false, "there is no room for them");
}

}  // namespace plimsoll
