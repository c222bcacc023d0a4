#include "plan/plan.h"

#include <algorithm>
#include <set>

#include "base/units.h"

namespace plimsoll {
namespace {

// Micro-batch sizes worth weighing: for every number of micro-steps the smallest size that reaches it, since
// a larger one of the same number costs memory and saves nothing.
std::vector<int64_t> micro_batches(const PlanRequest& request) {
  if (request.micro_batch) return {std::min(*request.micro_batch, request.experiment.effective_batch)};
  std::set<int64_t> sizes;
  const int64_t effective = request.experiment.effective_batch;
  for (int64_t micro = 1; micro <= effective; ++micro)
    sizes.insert(ceil_div(effective, accumulation_for(effective, micro)));
  return {sizes.rbegin(), sizes.rend()};
}

Variant variant_for(const PlanRequest& request, int64_t micro) {
  const Experiment& experiment = request.experiment;
  Variant variant;
  variant.micro_batch = micro;
  variant.accumulation = accumulation_for(experiment.effective_batch, micro);
  variant.eval_micro_batch = request.eval_micro_batch.value_or(micro);
  variant.loss_chunk =
      request.loss_chunk.value_or(default_loss_chunk(experiment, micro * experiment.max_length));
  return variant;
}

Candidate weigh(const PlanRequest& request, const Variant& variant) {
  const auto programs = build_programs(request.experiment, variant, request.device);
  return {variant, arena_lower_bound(programs),
          predict_step_seconds(programs, variant, request.device.rates)};
}

bool within(int64_t bytes, const std::optional<int64_t>& limit) { return !limit || bytes <= *limit; }

Plan lay_out_plan(const PlanRequest& request, const Candidate& candidate) {
  Plan plan;
  plan.request = request;
  plan.variant = candidate.variant;
  plan.programs = build_programs(request.experiment, candidate.variant, request.device);
  plan.layout = lay_out(plan.programs, request.layout);
  validate(plan.programs, plan.layout);
  plan.seconds_per_step = candidate.seconds_per_step;
  return plan;
}

const char* component_of(const TableRow& row) {
  switch (row.role) {
    case Role::frozen_weight:
      return "weights (frozen)";
    case Role::trainable_weight:
      return "weights (trained)";
    case Role::master:
      return "master weights";
    case Role::gradient:
      return "gradients";
    case Role::optimizer_state:
      return "optimizer states";
    case Role::kv_cache:
      return "key-value cache";
    case Role::metric:
    case Role::input:
      return "inputs and metrics";
    case Role::scratch:
      return "library scratch";
    case Role::activation:
      return "activations";
  }
  return "";
}

const ProgramLayout& largest_program(const ArenaLayout& layout) {
  return *std::max_element(layout.programs.begin(), layout.programs.end(), [](const auto& a, const auto& b) {
    return a.transient_bytes < b.transient_bytes;
  });
}

void add_component(std::vector<Component>& components, const std::string& name, int64_t bytes) {
  if (bytes == 0) return;
  const auto found =
      std::find_if(components.begin(), components.end(), [&](const Component& c) { return c.name == name; });
  if (found == components.end()) {
    components.push_back({name, bytes});
  } else {
    found->bytes += bytes;
  }
}

// Activations that were written in the forward pass and wait for the backward pass are "kept"; the rest is at
// work.
const char* transient_component(const Graph& graph, const TableRow& row, int32_t peak) {
  if (row.role != Role::activation) return component_of(row);
  const bool kept = row.first < peak && graph.ops()[static_cast<size_t>(row.first)].stage == Stage::forward &&
                    graph.ops()[static_cast<size_t>(peak)].stage == Stage::backward;
  return kept ? "activations kept" : "working tensors at the peak";
}

}  // namespace

int64_t HostNeeds::total() const {
  int64_t bytes = 0;
  for (const Component& component : components) bytes += component.bytes;
  return bytes;
}

int64_t Plan::data_bytes() const {
  return arena_bytes() + request.host.baseline_data_bytes + request.host.total() +
         request.host.extra_data_bytes;
}

double Plan::tokens_per_second() const {
  const Experiment& experiment = request.experiment;
  return static_cast<double>(experiment.effective_batch * experiment.max_length) / seconds_per_step;
}

bool Plan::fits_device() const { return within(arena_bytes(), request.budget.device_bytes); }
bool Plan::fits_host() const { return within(request.host.total(), request.budget.host_bytes); }

Plan make_plan(const PlanRequest& request) {
  std::vector<Candidate> candidates;
  for (const int64_t micro : micro_batches(request))
    candidates.push_back(weigh(request, variant_for(request, micro)));
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.seconds_per_step < b.seconds_per_step;
  });
  // The bound is nearly always met exactly; where a layout misses it, the next candidate gets its turn.
  for (const Candidate& candidate : candidates) {
    if (!within(candidate.arena_bytes, request.budget.device_bytes)) continue;
    Plan plan = lay_out_plan(request, candidate);
    if (!plan.fits_device()) continue;
    plan.candidates = candidates;
    return plan;
  }
  const Candidate smallest =
      *std::min_element(candidates.begin(), candidates.end(),
                        [](const Candidate& a, const Candidate& b) { return a.arena_bytes < b.arena_bytes; });
  Plan plan = lay_out_plan(request, smallest);
  plan.candidates = candidates;
  return plan;
}

std::vector<Component> device_components(const Plan& plan) {
  std::vector<Component> components;
  for (const TableRow& row : plan.layout.persistent)
    add_component(components, component_of(row), round_up(row.bytes, kArenaAlignment));
  const ProgramLayout& program = largest_program(plan.layout);
  const auto index = static_cast<size_t>(&program - plan.layout.programs.data());
  std::set<int64_t> counted;  // storages shared by several tensors count once
  int64_t alive = 0;
  for (const TableRow& row : program.rows) {
    if (is_persistent(row.role) || row.first > program.peak_op || row.last < program.peak_op) continue;
    if (!counted.insert(row.offset).second) continue;
    const int64_t bytes = round_up(row.bytes, kArenaAlignment);
    add_component(components, transient_component(plan.programs[index], row, program.peak_op), bytes);
    alive += bytes;
  }
  add_component(components, "gaps of the layout", program.transient_bytes - alive);
  return components;
}

std::string peak_place(const Plan& plan) {
  const ProgramLayout& program = largest_program(plan.layout);
  const auto index = static_cast<size_t>(&program - plan.layout.programs.data());
  const Graph& graph = plan.programs[index];
  if (graph.ops().empty()) return program.name;
  const Op& op = graph.ops()[static_cast<size_t>(program.peak_op)];
  return op.scope + ", " + std::string(to_string(op.stage)) + " (" + std::string(to_string(op.kind)) + ")";
}

}  // namespace plimsoll
