#include "plan/search/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "layout/limited_layout.h"
#include "ops/linear/int8.h"
#include "passes/keep_frozen.h"
#include "plan/program/time_model.h"
#include "plan/search/depth_model.h"
#include "plan/search/fitting_plans.h"
#include "plan/search/graphs_of_plan.h"
#include "plan/search/micro_capacities.h"
#include "plan/search/run_time.h"
#include "plan/search/search.h"
#include "plan/search/sent_bytes.h"
#include "plan/search/workloads.h"

namespace plimsoll {
namespace {

constexpr const char* kProgramsComponent = "programs";
// The share of planning_work() that the work of a search for a layout (ArenaLayout::work) counts as.
constexpr double kSearchedOfWork = 50;

// Bytes of a token, in the micro-step that reads it.
int64_t kept_row_bytes(const std::vector<Graph>& programs) {
  const Graph& train = programs.front();
  const Tensor& kept = train.tensor(train.find(kKeptTensor));
  return kept.shape.last() * size_of(kept.dtype);
}

// Tokens of an epoch that are kept: targets that have an axis of their own are not below the blocks that
// train, nor is the token that each begins with, which the loss does not see.
int64_t kept_tokens(const PlanRequest& request) {
  const DataSummary& data = *request.workload.data;
  if (!request.workload.experiment.has_targets()) return data.tokens;
  const double with_targets = 1 - data.skipped_share - data.damaged_share;
  return data.tokens - data.targets - std::llround(static_cast<double>(data.rows) * with_targets);
}

int64_t kept_bytes_of(const PlanRequest& request, int64_t token_bytes) {
  if (!request.workload.data) return 0;
  return kKeptLineBytes + kept_tokens(request) * token_bytes +
         (request.workload.data->rows * kept_records(request.workload.experiment) + 1) * kKeptHeadBytes;
}

// The request of a search through variants that keep what the frozen blocks say of rows.
PlanRequest keeping_frozen(PlanRequest request) {
  request.choices.keeps_frozen = true;
  request.choices.kept_bytes =
      kept_bytes_of(request, kept_row_bytes({begin_at_kept(build_forward(request.workload.experiment, {}))}));
  return request;
}

Plan lay_out_plan(const PlanRequest& request, const Variant& variant, LayoutLimit& limit) {
  Plan plan;
  plan.request = request;
  plan.variant = variant;
  plan.programs = programs_of(request.workload, variant, request.target.device);
  plan.layout = lay_out(plan.programs, request.target.layout, limit);
  for (const Graph& graph : plan.programs) add_planning_work(kLayoutWork * std::ssize(graph.ops()));
  add_planning_work(static_cast<int64_t>(plan.layout.work / kSearchedOfWork));
  validate(plan.programs, plan.layout);
  plan.spare_bytes = spare_bytes_of(request.workload, plan.programs, plan.layout);
  if (request.target.host_of) plan.host_of = request.target.host_of(plan);
  if (request.workload.use != Use::train) return plan;
  const Filling filling = filling_of(request.workload.experiment, request.workload.run, variant);
  plan.seconds_per_step = predict_step_seconds(plan.programs, variant, request.target.device.rates, filling);
  plan.seconds_per_step += launch_gaps(plan, TimeModel(request.target.device.rates, filling));
  plan.micro_steps =
      filling.micro_steps > 0 ? filling.micro_steps : static_cast<double>(variant.accumulation);
  plan.fill = filling.tokens;
  if (variant.keep_frozen) plan.kept_bytes = kept_bytes_of(request, kept_row_bytes(plan.programs));
  return plan;
}

Plan lay_out_plan(const PlanRequest& request, const Variant& variant) {
  LayoutLimit none;
  return lay_out_plan(request, variant, none);
}

// The most that the device's arena may take within a budget, whatever else a variant takes.
std::optional<int64_t> most_device_bytes(const PlanRequest& request) {
  std::optional<int64_t> most = request.target.budget.device_bytes;
  if (const auto& process = request.target.budget.process_bytes) {
    const int64_t left = *process - request.target.host.total();
    most = std::min(most.value_or(left), left);
  }
  return most;
}

// A quantised weight is its codes and its scales; starts of PiSSA and OLoRA are made of weights too.
const char* component_of_frozen(const TableRow& row) {
  const bool derived = row.parameter.origin == Origin::derived;
  if (derived && row.parameter.adapter != AdapterPart::none) return "starts of adapters";
  if (row.dtype == DType::i8 || (derived && row.name.ends_with(kInt8AbsmaxSuffix))) return "weights (int8)";
  return row.dtype == DType::u8 || derived ? "weights (nf4)" : "weights (frozen)";
}

const char* component_of(const TableRow& row) {
  switch (row.role) {
    case Role::frozen_weight:
      return component_of_frozen(row);
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

std::string at_peak(const std::string& component) {
  return component == "working tensors" ? "working tensors at the peak" : component;
}

}  // namespace

int64_t HostNeeds::total() const {
  int64_t bytes = 0;
  for (const Component& component : components) bytes += component.bytes;
  return bytes;
}

std::vector<Component> Plan::host_components() const {
  std::vector<Component> components = request.target.host.components;
  components.insert(components.end(), host_of.begin(), host_of.end());
  // One forward program is small compared with what threads and libraries are granted.
  if (request.workload.use != Use::evaluate)
    components.push_back({kProgramsComponent, program_heap_bytes(programs)});
  const int64_t once = layout.shared.bytes_in(Space::host);
  if (const int64_t own = host_arena_bytes() - once; own > 0)
    components.push_back({"offloaded to the host", own});
  if (once > 0)
    components.push_back(
        {formatted("frozen weights, 1/{} of one copy", request.target.layout.node_copy.processes),
         layout.shared.share});
  if (variant.keep_frozen)
    components.push_back(
        {"places of kept rows", request.workload.dataset_rows * kept_records(request.workload.experiment) *
                                    int64_t{sizeof(int64_t)}});
  if (!request.target.own_memory && graph_bytes() > 0) components.push_back({"graphs", graph_bytes()});
  if (request.target.budget.disk_in_memory && disk_bytes() > 0)
    components.push_back({"offload folder in memory (tmpfs)", disk_bytes()});
  return components;
}

int64_t Plan::host_bytes() const {
  int64_t bytes = 0;
  for (const Component& component : host_components()) bytes += component.bytes;
  return bytes;
}

int64_t Plan::data_bytes() const {
  int64_t planning = 0;  // beside the programs that are kept, those that were weighed
  for (const Component& component : host_components())
    if (component.name == kProgramsComponent) planning = component.bytes;
  const int64_t files =
      request.target.budget.disk_in_memory ? disk_bytes() : 0;  // pages, but not of the process
  const int64_t arena = request.target.own_memory
                            ? 0  // a card's is no data of the process, nor is what others have too
                            : arena_bytes() - layout.shared.bytes_in(Space::device) + spare_bytes;
  const int64_t once = layout.shared.bytes_in(Space::host) - layout.shared.of_others(Space::host);
  return arena - once + request.target.host.baseline_data_bytes + host_bytes() - files +
         request.target.host.extra_data_bytes + planning;
}

int64_t Plan::bytes_of(int64_t processes, int64_t nodes) const {
  return processes * (process_peak_bytes() - layout.shared.bytes) + nodes * layout.shared.bytes;
}

int64_t Plan::bytes_together() const { return bytes_of(request.workload.experiment.ranks, machines()); }

int64_t Plan::machines() const {
  return ceil_div(request.workload.experiment.ranks, request.target.budget.sharing);
}

int64_t Plan::memory_bytes() const {
  if (!request.target.own_memory) return process_share_bytes();
  return device_bytes() + outside_bytes(request.target.device);
}

int Plan::graphs_of(const std::string& program) const {
  const auto found = std::ranges::find(graphs, program, &PlannedGraphs::program);
  return found == graphs.end() ? 0 : found->graphs;
}

std::vector<OutsidePart> Plan::outside() const {
  std::vector<OutsidePart> parts = request.target.device.outside;
  if (request.target.own_memory && graph_bytes() > 0)
    parts.push_back(graphs_part(graphs, request.target.device));
  return parts;
}

std::optional<int64_t> Plan::arena_budget() const {
  const auto& process = request.target.budget.process_bytes;
  if (request.target.own_memory || !process) return request.target.budget.device_bytes;
  return std::max<int64_t>(0, *process - host_bytes() + layout.shared.of_others(Space::device));
}

std::optional<int64_t> memory_budget(const PlanRequest& request) {
  if (!request.target.own_memory) return request.target.budget.process_bytes;
  const auto& arena = request.target.budget.device_bytes;
  return arena ? std::optional(*arena + outside_bytes(request.target.device)) : std::nullopt;
}

void limit_memory(PlanRequest& request, std::optional<int64_t> bytes) {
  if (request.target.own_memory && bytes)
    bytes = std::max<int64_t>(0, *bytes - outside_bytes(request.target.device));
  (request.target.own_memory ? request.target.budget.device_bytes : request.target.budget.process_bytes) =
      bytes;
}

int64_t memory_bytes(const PlanRequest& request, const Candidate& candidate) {
  if (request.target.own_memory)
    return candidate.arena_bytes + candidate.graph_bytes + outside_bytes(request.target.device);
  return candidate.arena_bytes + candidate.host_bytes + request.target.host.total() +
         (request.target.budget.disk_in_memory ? candidate.disk_bytes : 0);
}

double Plan::tokens_per_second() const {
  const Experiment& experiment = request.workload.experiment;
  const double tokens = request.workload.run && request.workload.run->tokens > 0
                            ? request.workload.run->tokens
                            : static_cast<double>(experiment.effective_batch * experiment.sample_tokens());
  return tokens / seconds_per_step;
}

double Plan::run_seconds() const {
  if (!request.workload.run) return 0;
  return static_cast<double>(request.workload.run->steps) * seconds_per_step +
         static_cast<double>(request.workload.run->evaluations) * seconds_per_evaluation + kept_seconds +
         (request.workload.data ? request.workload.data->scratch.seconds : 0.0);
}

bool Plan::fits_device() const {
  const int64_t bytes = arena_bytes() + spare_bytes + (request.target.own_memory ? graph_bytes() : 0);
  return keeps(bytes, request.target.budget.device_bytes);
}
bool Plan::fits_host() const { return keeps(host_bytes(), request.target.budget.host_bytes); }
bool Plan::fits_disk() const { return keeps(disk_bytes(), request.target.budget.disk_bytes); }
bool Plan::fits_process() const { return keeps(process_share_bytes(), request.target.budget.process_bytes); }

namespace {

void time_evaluations(Plan& plan) {
  const auto& run = plan.request.workload.run;
  if (!run) return;
  const Experiment& experiment = plan.request.workload.experiment;
  TimeModel model(plan.request.target.device.rates, filling_of(experiment, run, plan.variant));
  const MicroCapacity capacity = experiment.eval_capacity(plan.variant);
  const auto effective = static_cast<double>(experiment.samples_each());
  const double rows = capacity.by_tokens() && run->sizes
                          ? effective / estimate_micro_steps(experiment, capacity, *run->sizes).steps
                          : static_cast<double>(capacity.samples);
  for (const Graph& graph : plan.programs)
    if (graph.name() == kEvalProgram)
      plan.seconds_per_evaluation =
          model.program_seconds(graph) *
          std::ceil(static_cast<double>(ceil_div(run->eval_rows, experiment.ranks)) / rows);
}

// Once over an epoch's rows, and what is written and read of them, as though nothing else ran at the same
// time.
void time_kept(Plan& plan) {
  const auto& run = plan.request.workload.run;
  if (!plan.variant.keep_frozen || !run || !plan.request.workload.data || run->tokens <= 0) return;
  const DeviceRates& rates = plan.request.target.device.rates;
  TimeModel model(rates, filling_of(plan.request.workload.experiment, run, plan.variant));
  const double epoch_steps = static_cast<double>(plan.request.workload.data->tokens) / run->tokens;
  const double kept_share = static_cast<double>(kept_tokens(plan.request)) /
                            static_cast<double>(plan.request.workload.data->tokens);
  const double read = static_cast<double>(run->steps) * run->tokens * kept_share *
                      static_cast<double>(kept_row_bytes(plan.programs)) / rates.disk_read;
  plan.kept_seconds = read + static_cast<double>(plan.kept_bytes) / rates.disk_write;
  for (const Graph& graph : plan.programs)
    if (graph.name() == kFrozenProgram)
      plan.kept_seconds += model.program_seconds(graph) * plan.micro_steps * epoch_steps;
}

std::optional<Candidate> choose_within(const Budget& budget, Search& search, const PlanRequest& request,
                                       const Search::LayOut& lay_out, bool on_device = false) {
  constexpr double kLittleSlower = 1.05;
  constexpr double kMuchSlower = 2;
  if (request.choices.preset == Preset::least) {
    const Candidate least = search.smallest(budget, lay_out);
    return within(least, budget, request.target.host) ? std::optional(least) : std::nullopt;
  }
  const auto fastest = search.fastest(budget, lay_out, on_device);
  if (!fastest || request.choices.preset == Preset::none) return fastest;
  const double slower = request.choices.preset == Preset::c ? kMuchSlower : kLittleSlower;
  const auto least = search.least_within(budget, slower * fastest->seconds_per_step, lay_out, on_device);
  return least ? least : fastest;
}

std::optional<Candidate> choose(Search& search, const PlanRequest& request, const Search::LayOut& lay_out) {
  const bool is_open = request.target.likely_host_bytes && !request.target.budget.host_bytes &&
                       !request.choices.offload && request.choices.preset != Preset::c &&
                       request.choices.preset != Preset::least;
  if (is_open) {
    if (const auto found = choose_within(request.target.budget, search, request, lay_out, true)) return found;
    Budget likely = request.target.budget;
    for (const int64_t times : {1, 2, 4}) {
      likely.host_bytes = times * *request.target.likely_host_bytes;
      if (const auto found = choose_within(likely, search, request, lay_out)) return found;
    }
  }
  return choose_within(request.target.budget, search, request, lay_out);
}

}  // namespace

// Lays candidates of a request out, each of them once.
class Layouts {
 public:
  explicit Layouts(const PlanRequest& request) : request_(request) {}

  Candidate of(const Candidate& candidate) { return of(candidate, {}); }
  // The same for a choice within the request's budget: what takes more than that need not be laid out tightly, unless the
  // least of all is asked for.
  Candidate of_choice(const Candidate& candidate) {
    const bool is_least = request_.choices.preset == Preset::least;
    return of(candidate, {.device_bytes = is_least ? std::nullopt : most_device_bytes(request_)});
  }
  const Plan& plan(const Candidate& candidate) {
    LayoutLimit none;
    return plan(candidate, none);
  }
  Plan take(const Candidate& candidate) {
    plan(candidate);
    return *std::exchange(latest_, std::nullopt);
  }

 private:
  struct Known {
    Candidate candidate;
    std::optional<int64_t> most;  // bytes for which it was not laid out tightly; none: it was
    [[nodiscard]] bool serves(const Candidate& other, const LayoutLimit& limit) const {
      return candidate.variant == other.variant && candidate.graphs == other.graphs &&
             (!most || (limit.device_bytes && *limit.device_bytes <= *most));
    }
  };

  Candidate of(const Candidate& candidate, LayoutLimit limit) {
    for (const Known& known : known_)
      if (known.serves(candidate, limit)) return known.candidate;
    plan(candidate, limit);
    set_graphs(*latest_, candidate.graphs);
    known_.push_back({candidate_of(*latest_), is_loose_ ? limit.device_bytes : std::nullopt});
    known_.back().candidate.graphs = candidate.graphs;
    return known_.back().candidate;
  }
  // A layout that was given up is laid out anew.
  const Plan& plan(const Candidate& candidate, LayoutLimit& limit) {
    if (!latest_ || latest_->variant != candidate.variant || is_loose_) {
      latest_ = lay_out_plan(request_, candidate.variant, limit);
      is_loose_ = limit.gave_up;
    }
    return *latest_;
  }

  const PlanRequest& request_;
  std::vector<Known> known_;
  std::optional<Plan> latest_;
  bool is_loose_ = false;  // the latest
};

Candidate candidate_of(const Plan& plan) {
  Candidate candidate;
  candidate.variant = plan.variant;
  candidate.arena_bytes = plan.arena_share_bytes();
  candidate.graph_bytes = plan.request.target.own_memory ? plan.graph_bytes() : 0;
  const int64_t files = plan.request.target.budget.disk_in_memory ? plan.disk_bytes() : 0;
  candidate.host_bytes = plan.host_bytes() - plan.request.target.host.total() - files;
  candidate.disk_bytes = plan.disk_bytes();
  candidate.disk_traffic =
      disk_traffic(plan.programs, plan.variant,
                   filling_of(plan.request.workload.experiment, plan.request.workload.run, plan.variant));
  candidate.seconds_per_step = plan.seconds_per_step;
  candidate.layout_work = plan.layout.work;
  return candidate;
}

int64_t kept_records(const Experiment& experiment) {
  return experiment.has_targets() ? 1 : rule_of(experiment.task.task).sequences;
}

std::string why_nothing_is_kept(const PlanRequest& request) {
  if (!request.target.budget.disk_bytes || *request.target.budget.disk_bytes == 0)
    return "memory.disk is 0, and the cache is on disk (--disk 20GiB)";
  if (!request.workload.data || !request.workload.run) return "the recipe names no rows";
  if (request.target.own_memory)
    return "the cache is read into host memory, and the GPU has memory of its own";
  if (request.workload.experiment.shares_prefixes)
    return "data.share_prefixes computes common prefixes of rows once for all of them; set it to off";
  if (request.workload.experiment.documents > 1) return "data.packing combines other rows in every epoch";
  if (!request.workload.same_rows)
    return "a weight of data.train that is not a whole number selects other rows in every epoch";
  if (!has_frozen_blocks(build_forward(request.workload.experiment, {})))
    return "no block without random draws lies below all that trains, or more than one tensor "
           "leaves such blocks";
  return "";
}

namespace {

// Adds to a plan all but its programs and their layout: captured graphs, and the seconds of what is no step.
Plan finish(Plan plan) {
  take_graphs(plan);
  if (plan.request.workload.use != Use::train) return plan;
  const SentBytes sent = sent_bytes(plan);
  const double rate = plan.request.target.link.bytes_per_second;
  plan.sent_bytes = sent.in_step + std::llround(plan.micro_steps * static_cast<double>(sent.in_micro_step));
  plan.sending_seconds = static_cast<double>(plan.sent_bytes) / rate;
  // Ops that send have it in their own seconds. What is sent once a step, every variant of this stage sends.
  const double once = static_cast<double>(sent.in_step) / rate;
  plan.seconds_per_step += once;
  plan.smallest.seconds_per_step += once;
  if (plan.knee) plan.knee->seconds_per_step += once;
  time_evaluations(plan);
  time_kept(plan);
  return plan;
}

// A plan is wanted always, where nothing fits the least memory for the refusal, or only where it fits.
enum class Wanted : uint8_t { always, where_it_fits };

// The best variant of one alternative.
std::optional<Plan> search_plan(const PlanRequest& request, int64_t most_ops,
                                Wanted wanted = Wanted::always) {
  Search search(request, most_ops);
  Layouts layouts(request);
  const auto lay_out = [&](const Candidate& candidate) { return layouts.of(candidate); };
  const auto chosen =
      choose(search, request, [&](const Candidate& candidate) { return layouts.of_choice(candidate); });
  if (!chosen && wanted == Wanted::where_it_fits) return std::nullopt;
  std::optional<Plan> plan;
  if (chosen) plan = layouts.take(*chosen);
  const auto knee =
      chosen && request.names_knee ? search.knee(*chosen, request.target.budget, lay_out) : std::nullopt;
  const Candidate smallest = search.smallest(request.target.budget, lay_out);
  if (!plan) plan = layouts.take(smallest);
  // The chosen plan may be the smallest that was laid out.
  const bool is_least = chosen && memory_bytes(request, *chosen) < memory_bytes(request, smallest);
  plan->smallest = is_least ? *chosen : smallest;
  plan->knee = knee;
  plan->search_ended = search.ended_early();
  // Suggestions continue from there.
  plan->request.measured = plan->fits() ? nullptr : search.measured();
  return finish(std::move(*plan));
}

// With the micro-batch that preset B settles.
PlanRequest settled(const PlanRequest& given, int64_t most_ops) {
  PlanRequest request = given;
  if (request.choices.preset == Preset::b && !request.choices.micro_batch) {
    PlanRequest least = given;
    least.choices.preset = Preset::a;
    const Variant best = search_plan(least, most_ops)->variant;
    request.choices.micro_batch = ceil_div(best.micro_batch, 2);
    if (best.micro_tokens > 0)
      request.choices.micro_tokens =
          std::max(given.workload.experiment.longest_row().tokens, ceil_div(best.micro_tokens, 2));
  }
  return request;
}

// One of the searches that a request may lead to, or a variant that is not
// searched for.
struct Alternative {
  PlanRequest request;
  bool is_last_resort = false;  // this and those after it are planned only where
                                // nothing before them fits
  std::optional<Variant> variant = {};
};

bool visits_rows_again(const PlanRequest& request) {
  return request.workload.run && request.workload.data &&
         static_cast<double>(request.workload.run->steps) * request.workload.run->tokens >
             1.001 * static_cast<double>(request.workload.data->tokens);
}

// With the outputs of frozen blocks recomputed in every epoch, and kept, as far as the request leaves that
// open.
void add_with_frozen(const PlanRequest& request, bool is_last_resort, std::vector<Alternative>& all) {
  const bool always = request.choices.keep_frozen == KeepFrozen::on;
  const bool requested =
      always || (request.choices.keep_frozen == KeepFrozen::automatic && visits_rows_again(request));
  const std::string why_not = requested ? why_nothing_is_kept(request) : "";
  if (always && !why_not.empty()) throw UsageError("memory.keep_frozen: on, but " + why_not);
  if (!always) all.push_back({request, is_last_resort});
  if (requested && why_not.empty()) all.push_back({keeping_frozen(request), always && is_last_resort});
}

// All that the request leaves open apart from the variant. Captured graphs are a choice of each variant
// (Search).
std::vector<Alternative> alternatives(const PlanRequest& given) {
  std::vector<Alternative> all;
  if (given.workload.use != Use::train) {
    for (const Variant& variant : variants_of(given)) all.push_back({given, !all.empty(), variant});
    return all;
  }
  add_with_frozen(given, false, all);
  if (!given.choices.may_stop_sharing) return all;
  // Trees of rows need memory of their own in the backward pass.
  PlanRequest apart = given;
  apart.workload.experiment.shares_prefixes = apart.choices.may_stop_sharing = false;
  add_with_frozen(apart, true, all);
  return all;
}

std::optional<Part> part_of(Role role) {
  switch (role) {
    case Role::optimizer_state:
    case Role::master:
      return Part::states;
    case Role::gradient:
      return Part::gradients;
    case Role::frozen_weight:
    case Role::trainable_weight:
      return Part::weights;
    default:
      return std::nullopt;
  }
}

// Refuses places that the recipe states and the disk has no room for: of the part that takes most, how many
// layers would do.
void refuse_stated_disk(const Plan& plan) {
  const std::optional<OffloadTargets>& stated = plan.request.choices.targets;
  const auto is_on_disk = [](const PartTarget& target) { return target.on_disk > 0; };
  if (!stated || plan.fits_disk() || std::ranges::none_of(*stated, is_on_disk)) return;
  const auto layers = static_cast<size_t>(plan.request.workload.experiment.model.layers);
  std::array<std::vector<int64_t>, 4> bytes;  // on disk, by part and layer; the last is outside of them
  for (auto& of_part : bytes) of_part.resize(layers + 1);
  std::set<std::string_view> counted;
  for (const Graph& graph : plan.programs)
    for (const Tensor& tensor : graph.tensors()) {
      const auto part = part_of(tensor.role);
      if (!part || tensor.space != Space::disk || !counted.insert(tensor.name.text()).second) continue;
      const size_t block = tensor.block == kNoBlock ? layers : static_cast<size_t>(tensor.block);
      bytes[static_cast<size_t>(*part)][block] += round_up(tensor.bytes(), kArenaAlignment);
    }
  const auto sum = [](const std::vector<int64_t>& of_part) {
    return std::accumulate(of_part.begin(), of_part.end(), int64_t{0});
  };
  const auto largest = std::ranges::max_element(bytes, {}, sum);
  if (sum(*largest) == 0) return;  // activations alone: the refusal says what the disk needs
  int64_t over = plan.disk_bytes() - *plan.request.target.budget.disk_bytes;
  size_t most = layers + 1;
  while (most > 0 && over > 0) over -= (*largest)[--most];
  const auto part = static_cast<Part>(largest - bytes.begin());
  const std::string remedy = over > 0 ? "say more with memory.disk"
                                      : formatted("say {{disk: {}}} at most", std::min(most, layers - 1));
  throw UsageError(
      formatted("memory.offload_to: {}: what is on disk takes {}, and memory.disk is {}; {}, or --disk {}B",
                to_string(part), format_bytes_up(plan.disk_bytes()),
                format_bytes(*plan.request.target.budget.disk_bytes), remedy, plan.disk_bytes()));
}

std::optional<Plan> plan_alternative(const Alternative& alternative, int64_t most_ops, Wanted wanted) {
  const PlanRequest& request = alternative.request;
  if (alternative.variant) return finish(lay_out_plan(request, *alternative.variant));
  std::optional<Plan> plan = search_plan(settled(request, most_ops), most_ops, wanted);
  if (!plan) return plan;
  std::shared_ptr<KnownModels> measured = std::move(plan->request.measured);
  plan->request = request;
  plan->request.measured = std::move(measured);
  return plan;
}

// Returns true if a plan is the better answer than the best one of the alternatives before it.
bool is_better(const Plan& plan, const Plan& best, bool is_last_resort) {
  if (plan.request.workload.use != Use::train) return true;  // fewer rows than before
  if (!plan.fits()) return is_last_resort && plan.process_share_bytes() < best.process_share_bytes();
  return !best.fits() || plan.run_seconds() < best.run_seconds();
}

std::optional<Plan> best_plan(const PlanRequest& request, int64_t most_ops, Wanted wanted) {
  std::optional<Plan> best;
  for (const Alternative& alternative : alternatives(request)) {
    if (best && best->fits() && alternative.is_last_resort) break;
    std::optional<Plan> plan = plan_alternative(alternative, most_ops, wanted);
    if (plan && (!best || is_better(*plan, *best, alternative.is_last_resort))) best = std::move(plan);
  }
  if (best) refuse_stated_disk(*best);
  return best;
}

}  // namespace

Plan make_plan(const PlanRequest& request) { return make_plan(request, kMostOps); }

Plan make_plan(const PlanRequest& request, int64_t most_ops) {
  return *best_plan(request, most_ops, Wanted::always);
}

std::optional<Plan> plan_where_it_fits(const PlanRequest& request) {
  auto plan = best_plan(request, kMostOps, Wanted::where_it_fits);
  return plan && plan->fits() ? std::move(plan) : std::nullopt;
}

struct FittingPlans::State {
  explicit State(const PlanRequest& given) : request(settled(given, kMostOps)) {}
  PlanRequest request;
  Search search{request};
  Layouts layouts{request};
};

FittingPlans::FittingPlans(const PlanRequest& request) : request_(request) {
  if (request.choices.keep_frozen != KeepFrozen::on) return;
  is_possible_ = why_nothing_is_kept(request).empty();
  if (is_possible_) request_ = keeping_frozen(request);
}
FittingPlans::FittingPlans(FittingPlans&&) noexcept = default;
FittingPlans& FittingPlans::operator=(FittingPlans&&) noexcept = default;
FittingPlans::~FittingPlans() = default;

std::optional<Plan> FittingPlans::within(const Budget& budget) {
  if (!is_possible_) return std::nullopt;
  auto plan = fastest(budget);
  return plan && plan->fits() ? std::move(plan) : std::nullopt;
}

FittingPlans::State& FittingPlans::state_within(const Budget& budget) {
  request_.target.budget = budget;
  // Preset B has another space for each budget.
  if (state_ == nullptr || request_.choices.preset == Preset::b) state_ = std::make_unique<State>(request_);
  state_->request.target.budget = budget;
  return *state_;
}

bool FittingPlans::may_fit(const Budget& budget) {
  return is_possible_ && state_within(budget).search.may_fit(budget);
}

std::optional<Plan> FittingPlans::fastest(const Budget& budget) {
  State& state = state_within(budget);
  const auto chosen = choose(state.search, state.request,
                             [&](const Candidate& candidate) { return state.layouts.of_choice(candidate); });
  if (!chosen) return std::nullopt;
  Plan plan = state.layouts.plan(*chosen);
  plan.request = request_;
  plan.smallest = candidate_of(plan);
  plan.search_ended = state.search.ended_early();
  return finish(std::move(plan));
}

Plan plan_variant(const PlanRequest& request, const Variant& variant) {
  Plan plan = lay_out_plan(request, variant);
  plan.smallest = candidate_of(plan);
  return finish(std::move(plan));
}

int64_t device_bytes_at_least(const PlanRequest& request, const Variant& variant) {
  KnownPrograms programs(request.workload.experiment, request.target.device, {}, nullptr, false,
                         request.target.layout.node_copy);
  return estimate(programs, variant).of(Space::device);
}

std::string component_name(const Graph& graph, const TableRow& row) {
  if (row.role != Role::activation) return component_of(row);
  const auto stage = [&](int32_t op) { return graph.ops()[static_cast<size_t>(op)].stage; };
  const bool kept = stage(row.first) == Stage::forward && stage(row.last) == Stage::backward;
  return kept ? "activations kept" : "working tensors";
}

std::vector<Component> device_components(const Plan& plan) {
  std::vector<Component> components;
  for (const TableRow& row : plan.layout.persistent)
    if (row.space == Space::device)
      add_component(components, component_of(row), round_up(row.bytes, kArenaAlignment));
  const ProgramLayout& program = largest_program(plan.layout);
  const auto index = static_cast<size_t>(&program - plan.layout.programs.data());
  std::set<int64_t> counted;  // storages shared by several tensors count once
  int64_t alive = 0;
  for (const TableRow& row : program.rows) {
    if (is_persistent(row.role) || row.space != Space::device) continue;
    if (row.first > program.peak_op || row.last < program.peak_op) continue;
    if (!counted.insert(row.offset).second) continue;
    const int64_t bytes = round_up(row.bytes, kArenaAlignment);
    add_component(components, at_peak(component_name(plan.programs[index], row)), bytes);
    alive += bytes;
  }
  add_component(components, "gaps of the layout", program.transient_bytes - alive);
  return components;
}

std::vector<Component> disk_components(const Plan& plan) {
  std::vector<Component> components;
  int64_t persistent = 0;
  for (const TableRow& row : plan.layout.persistent) {
    if (row.space != Space::disk) continue;
    add_component(components, component_of(row), round_up(row.bytes, kArenaAlignment));
    persistent += round_up(row.bytes, kArenaAlignment);
  }
  const int64_t arena = plan.layout.arena_bytes(Space::disk);
  add_component(components, "activations", arena - persistent);
  add_component(components, "outputs of the frozen blocks", plan.kept_bytes);
  add_component(components, "rest of the file's last block", disk_file_bytes(plan.layout) - arena);
  return components;
}

std::string peak_place(const Plan& plan) {
  const ProgramLayout& program = largest_program(plan.layout);
  const auto index = static_cast<size_t>(&program - plan.layout.programs.data());
  const Graph& graph = plan.programs[index];
  if (graph.ops().empty()) return program.name;
  const Op& op = graph.ops()[static_cast<size_t>(program.peak_op)];
  return formatted("{}, {} ({})", op.scope, to_string(op.stage), to_string(op.kind));
}

}  // namespace plimsoll
