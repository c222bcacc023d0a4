// plimsoll plan --explain.
#include <algorithm>
#include <cstdio>

#include "base/print.h"
#include "base/screen.h"
#include "cli/plan/plan_command.h"
#include "cpu/describe.h"
#include "plan/report/explain.h"
#include "prepare/allowed.h"
#include "prepare/host_needs.h"

namespace plimsoll {
namespace {

// The host's needs of a changed recipe, with rows so many times as long as they are.
HostNeeds host_of(const Resolved& resolved, const PlanRequest& request, const CpuSettings& cpu,
                  const DataSetup* opened, int64_t longer = 1) {
  std::optional<DataSetup> data;
  if (!resolved.recipe.data.train.empty()) {
    data = open_data(resolved, {}, false, opened);
    for (auto* source : {&data->train, &data->eval})
      if (*source) (*source)->loader.longest_sample *= longer;
  }
  return host_needs(resolved, request.workload.experiment, cpu, data ? &*data : nullptr);
}

std::vector<Doubled> doubled(const PlanInput& input, const AllowedPlan& allowed) {
  const Plan& plan = allowed.plan;
  std::vector<Doubled> list = doubled_dimensions(plan);
  const Resolved resolved = resolve_as(input.resolved, allowed.recipe);
  Resolved longer = resolved;
  longer.recipe.data.max_length *= 2;
  list.front().request.target.host =
      host_of(longer, list.front().request, input.machine.cpu, input.data.get(), 2);

  Doubled batch{"effective batch", plan.request, plan.variant};
  Resolved larger = resolved;
  larger.recipe.batch.effective *= 2;
  batch.request.workload.experiment.effective_batch *= 2;
  batch.variant.accumulation *= 2;
  batch.request.target.host = host_of(larger, batch.request, input.machine.cpu, input.data.get());
  list.push_back(std::move(batch));

  Doubled threads{"threads", plan.request, plan.variant};
  CpuSettings cpu = input.machine.cpu;
  cpu.threads *= 2;
  if (plan.request.target.device.card_name.empty()) {  // threads are nothing to a card
    threads.request.target.device = describe_cpu(cpu.isa, cpu.threads);
    threads.request.target.device.rates = plan.request.target.device.rates;
    threads.request.target.device.reaches_host = plan.request.target.device.reaches_host;
  }
  threads.request.target.host = host_of(resolved, threads.request, cpu, input.data.get());
  list.push_back(std::move(threads));
  return list;
}

}  // namespace

ExitCode run_explain(const PlanArguments& arguments) {
  const PlanInput input = plan_of(arguments).input;
  const AllowedPlan allowed = plan_allowed(input.resolved, input.machine, input.data.get());
  const Plan& plan = allowed.plan;
  const Explanation explanation = explain(plan, doubled(input, allowed));
  print(arguments.json ? explain_json(plan, explanation)
                       : explain_text(plan, explanation, std::min<size_t>(output_columns(), 100)));
  return plan.fits() ? ExitCode::ok : ExitCode::does_not_fit;
}

}  // namespace plimsoll
