// Writes the report of `plimsoll plan`: the verdict first, then the reason, then what to do next
// (docs/howto/fit-into-memory.md).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "graph/op_kind.h"
#include "models/model.h"
#include "ops/rule.h"
#include "passes/choice_json.h"
#include "plan/program/time_model.h"
#include "plan/program/train_graphs.h"
#include "plan/report/report_parts.h"
#include "plan/report/variant_keys.h"
#include "plan/search/micro_capacities.h"
#include "plan/search/plan.h"
#include "plan/search/run_time.h"

namespace plimsoll {
namespace {

constexpr size_t kWidestText = 100;  // columns; longer lines read badly

// Columns of a table that its bars may take next to names and sizes.
int bar_width(size_t columns) {
  constexpr size_t kWidest = 40, kNarrowest = 10, kBeside = 40;
  return static_cast<int>(std::clamp(columns - std::min(columns, kBeside), kNarrowest, kWidest));
}

std::string bar(int64_t bytes, int64_t total, int width) {
  const auto filled = static_cast<int>(static_cast<double>(bytes) / static_cast<double>(total) * width + 0.5);
  std::string text;
  for (int i = 0; i < filled; ++i) text += "█";
  return text;
}

std::string of_budget(int64_t bytes, const std::optional<int64_t>& budget) {
  return budget ? formatted("{} of {}", format_bytes(bytes), format_bytes(*budget)) : format_bytes(bytes);
}

std::string share(double part) { return format_count(std::llround(100 * part)) + " %"; }

std::string split_text(const Plan& plan) {
  const Experiment& experiment = plan.request.workload.experiment;
  const Variant& variant = plan.variant;
  const std::string devices =
      experiment.ranks > 1 ? formatted(" over {} devices, each", format_count(experiment.ranks)) : "";
  if (experiment.train_capacity(variant).by_tokens())
    return formatted("effective batch {}{} in about {} micro-steps of {} tokens, {} full",
                     format_count(experiment.effective_batch), devices, tenths(plan.micro_steps),
                     format_count(variant.micro_tokens), share(plan.fill));
  return formatted("effective batch {}{} = {} micro-batch x {} accumulation{}",
                   format_count(experiment.effective_batch), devices, format_count(variant.micro_batch),
                   format_count(variant.accumulation),
                   variant.micro_batch * variant.accumulation * experiment.ranks == experiment.effective_batch
                       ? ""
                       : " (the last one partly empty)");
}

std::string method_text(const Experiment& experiment) {
  if (!experiment.lora)
    return "full fine-tuning" +
           (experiment.frozen.empty() ? "" : std::string(", frozen: ") + join(experiment.frozen, " "));
  const LoraOptions& lora = experiment.lora_options;
  const bool int8 = experiment.quantised && experiment.quantisation.format == WeightFormat::int8;
  return std::string(int8                   ? "qlora (int8)"
                     : experiment.quantised ? "qlora"
                                            : "lora") +
         (lora.dora ? " with dora r" : " r") + std::to_string(lora.r) +
         (lora.targets.empty() ? ", all linear layers" : ", " + join(lora.targets, " ")) +
         (lora.layers.empty() ? "" : ", some layers") +
         (lora.rank_pattern.empty() ? "" : ", other ranks by pattern") +
         (lora.modules_to_save.empty() ? "" : ", whole " + join(lora.modules_to_save, " "));
}

int64_t phase_bytes(const Plan& plan, const ProgramLayout& program) {
  return plan.layout.persistent_bytes + program.transient_bytes;
}

// "+31 % time" against the chosen variant.
std::string time_change(const Plan& plan, const Candidate& candidate) {
  const double percent = (candidate.seconds_per_step / plan.seconds_per_step - 1.0) * 100.0;
  const auto rounded = static_cast<int>(percent + (percent < 0 ? -0.5 : 0.5));
  return formatted("{}{} % time", rounded >= 0 ? "+" : "", rounded);
}

// Adds the memory outside the arena, as a row of the table; nothing where nothing is known of the device.
void add_outside(const Plan& plan, TextTable& table) {
  const auto add = [&](const char* name, const std::vector<OutsidePart>& parts) {
    if (parts.empty()) return;
    std::string names;
    int64_t expected = 0, uncertain = 0;
    for (const OutsidePart& part : parts) {
      names += (names.empty() ? "" : ", ") + part.name;
      expected += part.bytes;
      uncertain += part.uncertain;
    }
    table.add_row({name, format_bytes(expected + uncertain),
                   formatted("{}: {} +- {}", names, format_bytes(expected), format_bytes(uncertain))});
  };
  add("outside the arena", plan.request.target.device.outside);
  if (plan.request.target.own_memory && plan.graph_bytes() > 0)
    add("captured graphs", {graphs_part(plan.graphs, plan.request.target.device)});
}

// The components, of more than `most` the smallest as one.
std::vector<Component> with_others(std::vector<Component> components, size_t most) {
  if (components.size() <= most || most < 2) return components;
  std::vector<int64_t> sizes;
  for (const Component& component : components) sizes.push_back(component.bytes);
  std::ranges::sort(sizes, std::greater{});
  const int64_t least = sizes[most - 2];  // the smallest that is shown by itself
  auto capacity =
      most - 1 - static_cast<size_t>(std::ranges::count_if(sizes, [&](auto size) { return size > least; }));
  std::vector<Component> shown;
  int64_t others = 0;
  for (Component& component : components) {
    const bool shows = component.bytes > least || (component.bytes == least && capacity > 0);
    if (component.bytes == least && capacity > 0) --capacity;
    if (shows)
      shown.push_back(std::move(component));
    else
      others += component.bytes;
  }
  shown.push_back({"others", others});
  return shown;
}

// With at most `most` rows of components: smaller ones are summed up.
std::string device_table(const Plan& plan, size_t columns, size_t most = SIZE_MAX) {
  TextTable table({false, true});
  std::string place = peak_place(plan);
  if (constexpr std::string_view kModel = "model."; place.starts_with(kModel)) place.erase(0, kModel.size());
  table.add_row({"device", "", "peak at: " + place});
  const std::vector<Component> components = with_others(device_components(plan), most);
  for (const Component& component : components)
    table.add_row({component.name, format_bytes(component.bytes),
                   bar(component.bytes, plan.arena_bytes(), bar_width(columns))});
  table.add_row({"total", format_bytes(plan.arena_bytes()),
                 formatted("(lower bound {})", format_bytes(plan.layout.lower_bound_bytes()))});
  if (const int64_t shared = plan.layout.shared.bytes_in(Space::device); shared > 0)
    table.add_row(
        {"shared", format_bytes(shared),
         formatted("of it, once for {} processes", plan.request.target.layout.node_copy.processes)});
  add_outside(plan, table);
  return table.render("  ", columns);
}

std::string host_table(const Plan& plan) {
  TextTable table({false, true});
  table.add_row({"host"});
  for (const Component& component : plan.host_components())
    table.add_row({component.name, format_bytes(component.bytes)});
  table.add_row({"total", format_bytes(plan.host_bytes())});
  if (const int64_t shared = plan.layout.shared.bytes_in(Space::host); shared > 0)
    table.add_row({"shared", format_bytes(shared),
                   formatted("one copy for {} processes, of which each counts its part",
                             plan.request.target.layout.node_copy.processes)});
  return table.render("  ");
}

// The part of a process's memory that others have too.
std::string shared_words(const Plan& plan) {
  const int64_t shared = plan.layout.shared.bytes;
  return shared == 0 ? "" : formatted(", {} of it shared", format_bytes(shared));
}

// Each of several devices has memory of its own, and the host of some of them one for all.
std::string memory_of_cards(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  const int64_t ranks = plan.request.workload.experiment.ranks, here = budget.sharing;
  const std::string device = formatted("device {} on each of {}",
                                       of_budget(plan.memory_bytes(), memory_budget(plan.request)), ranks);
  const std::string processes =
      formatted("{} processes of {}{}{}", here, format_bytes(plan.host_peak_bytes()), shared_words(plan),
                here < ranks ? ", on each machine" : "");
  if (!budget.host_bytes)
    return formatted("{}   needs {} of host memory ({})", device, format_bytes(plan.node_bytes()), processes);
  return formatted("{}   host {} ({})", device, of_budget(plan.node_bytes(), here * *budget.host_bytes),
                   processes);
}

// The memory that a budget bounds and how much of it is taken.
std::string memory_text(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  if (const int64_t ranks = plan.request.workload.experiment.ranks; ranks > 1) {
    if (plan.request.target.own_memory) return memory_of_cards(plan);
    const int64_t sharing = budget.sharing;
    const auto all = budget.process_bytes ? std::optional(sharing * *budget.process_bytes) : std::nullopt;
    if (sharing < ranks)
      return formatted("{} on each machine ({} of {} processes, of {} each{})",
                       of_budget(plan.node_bytes(), all), sharing, ranks,
                       format_bytes(plan.process_peak_bytes()), shared_words(plan));
    return formatted("{} ({} processes of {}{})", of_budget(plan.node_bytes(), all), ranks,
                     format_bytes(plan.process_peak_bytes()), shared_words(plan));
  }
  if (!plan.request.target.own_memory)
    return of_budget(plan.process_peak_bytes(), budget.process_bytes) + " (the whole process)";
  const std::string device = "device " + of_budget(plan.memory_bytes(), memory_budget(plan.request));
  if (!budget.host_bytes)
    return formatted("{}   needs {} of host memory", device, format_bytes(plan.host_bytes()));
  return formatted("{}   host {}", device, of_budget(plan.host_bytes(), budget.host_bytes));
}

// "14.4 GB/s", "150 GB/s", "12.5 MB/s"; the units of --link.
std::string rate_text(double bytes_per_second) {
  const auto [unit, bytes] = bytes_per_second >= 1e9   ? std::pair("GB/s", 1e9)
                             : bytes_per_second >= 1e6 ? std::pair("MB/s", 1e6)
                                                       : std::pair("KB/s", 1e3);
  const double rate = bytes_per_second / bytes;
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), rate < 100 ? "%.3g %s" : "%.0f %s", rate, unit);
  return text.data();
}

std::string rate_words(const Link& link, int64_t ranks, const Target& target) {
  const std::string rate = rate_text(link.bytes_per_second);
  switch (link.source) {
    case Link::Source::measured:
      return formatted("{}, as measured here", rate);
    case Link::Source::stated:
      return formatted("{}, as --link states", rate);
    case Link::Source::guessed:
      if (target.own_memory)
        return formatted("{}, a guess: {} of {} link, {}; --link states it", rate, share(link.share),
                         target.device.card_name.empty() ? "a guessed" : "the data sheet's",
                         link.share == kLinkThroughHost ? "through the host" : "from GPU to GPU");
      return formatted("{}, a guess: plimsoll calibrate --devices {} measures it", rate, ranks);
  }
  throw InternalError("rate_words: no such source");
}

const char* shard_words(ShardStage stage) {
  switch (stage) {
    case ShardStage::automatic:
    case ShardStage::none:
      return "each with all optimizer states (memory.shard)";
    case ShardStage::states:
      return "which divide the optimizer's states (memory.shard)";
    case ShardStage::gradients:
      return "which divide gradients and the optimizer's states (memory.shard)";
    case ShardStage::weights:
      return "which divide the layers' weights, gradients and the optimizer's states (memory.shard)";
  }
  throw InternalError("shard_words: no such stage");
}

// The memory of several devices, and the bytes between them.
std::string devices_text(const Plan& plan) {
  const Experiment& experiment = plan.request.workload.experiment;
  const bool own_memory = plan.request.target.own_memory;
  return formatted("{} processes of {}{}{}, {}; each sends {} a step{}, in {} ({})", experiment.ranks,
                   format_bytes(plan.process_peak_bytes()), shared_words(plan),
                   own_memory ? formatted(", each with {} of a GPU", format_bytes(plan.memory_bytes())) : "",
                   shard_words(experiment.optimizer.shard), format_bytes(plan.sent_bytes),
                   plan.request.target.exchange == ExchangeWay::nccl ? " by NCCL" : "",
                   duration_words(plan.sending_seconds),
                   rate_words(plan.request.target.link, experiment.ranks, plan.request.target));
}

std::string process_text(const Plan& plan) {
  const std::string data = format_bytes(plan.data_bytes()) + " of private data";
  if (plan.request.target.own_memory)
    return formatted("{} of the host's memory at its peak; {}", format_bytes(plan.process_peak_bytes()),
                     data);
  return formatted("{} at its peak: device {}, host {}; {}", format_bytes(plan.process_peak_bytes()),
                   format_bytes(plan.arena_bytes()), format_bytes(plan.host_peak_bytes()), data);
}

// Stated sizes may be those of another machine; a note warns users who mean this one.
std::string shortage_here(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  if (plan.request.target.own_memory || budget.of_free || budget.free_bytes == 0) return "";
  if (plan.process_share_bytes() <= budget.free_bytes) return "";
  return formatted("not here and now: {} are free on this machine", format_bytes(budget.free_bytes));
}

std::string disk_text(const Plan& plan) {
  std::vector<Component> components = disk_components(plan);
  std::string text = of_budget(plan.disk_bytes(), plan.request.target.budget.disk_bytes);
  for (const Component& component : components)
    text += formatted("{}{} {}", &component == components.data() ? ": " : ", ", component.name,
                      format_bytes(component.bytes));
  return text;
}

std::string savings_text(const Plan& plan) {
  std::string text;
  for (const Saving& saving : plan.savings)
    text += formatted("{}{} {}", text.empty() ? "" : " · ", saving.means,
                      format_bytes(saving.device_bytes - plan.arena_share_bytes()));
  return text + "; lossy: not allowed by the recipe";
}

std::string faster_text(const Plan& plan, const Faster& faster) {
  std::string sets;
  for (const std::string& set : faster.sets) sets += formatted("--set {} ", set);
  const double shorter = (1.0 - faster.run_seconds / plan.run_seconds()) * 100.0;
  return formatted("{}  {} (-{} %), {}: {}", sets, duration_words(faster.run_seconds), std::lround(shorter),
                   format_bytes(faster.memory_bytes), faster.effect);
}

nlohmann::ordered_json run_json(const Plan& plan) {
  if (!plan.request.workload.run) return nullptr;
  const RunSteps& run = *plan.request.workload.run;
  return {{"steps", run.steps},
          {"epochs", std::floor(run.epochs) == run.epochs ? nlohmann::ordered_json(std::llround(run.epochs))
                                                          : nlohmann::ordered_json(run.epochs)},
          {"estimated", run.estimated},
          {"seconds", plan.run_seconds()},
          {"evaluations", run.evaluations},
          {"seconds_per_evaluation", plan.seconds_per_evaluation},
          {"kept_seconds", plan.kept_seconds},
          {"tokens_per_step", run.tokens},
          {"row_length", run.row_length}};
}

nlohmann::ordered_json faster_json(const Plan& plan) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Faster& faster : plan.faster)
    list.push_back({{"set", faster.sets},
                    {"run_seconds", faster.run_seconds},
                    {"memory_bytes", faster.memory_bytes},
                    {"effect", faster.effect}});
  return list;
}

nlohmann::ordered_json notes_json(const std::vector<RecipeNote>& notes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RecipeNote& note : notes) list.push_back(note.text);
  return list;
}

nlohmann::ordered_json components_json(const std::vector<Component>& components) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Component& component : components)
    list.push_back({{"name", component.name}, {"bytes", component.bytes}});
  return list;
}

nlohmann::ordered_json optional_bytes(const std::optional<int64_t>& bytes) {
  return bytes ? nlohmann::ordered_json(*bytes) : nlohmann::ordered_json(nullptr);
}

std::string table_dump(const Plan& plan) {
  TextTable table({false, false, false, true, false, true, true});
  table.add_row({"program", "tensor", "type", "bytes", "space", "offset", "live", "role"});
  const auto add = [&](const std::string& program, const TableRow& row, bool transient) {
    table.add_row(
        {program, row.name, std::string(to_string(row.dtype)) + row.shape.to_string(),
         std::to_string(row.bytes), std::string(to_string(row.space)), std::to_string(row.offset),
         transient ? formatted("{}..{}", row.first, row.last) : "always",
         std::string(to_string(row.role)) + (row.shares.empty() ? "" : ", in place of " + row.shares)});
  };
  for (const TableRow& row : plan.layout.persistent) add("all", row, false);
  for (const ProgramLayout& program : plan.layout.programs)
    for (const TableRow& row : program.rows)
      if (!is_persistent(row.role)) add(program.name, row, true);
  return table.render();
}

// The layout problem of each program as CSV: what an outside solver would need.
std::string layout_dump(const Plan& plan) {
  std::string text = "program,tensor,first,last,bytes,space,offset\n";
  for (const ProgramLayout& program : plan.layout.programs)
    for (const TableRow& row : program.rows)
      if (!is_persistent(row.role))
        text += formatted("{},{},{},{},{},{},{}\n", program.name, row.name, row.first, row.last, row.bytes,
                          to_string(row.space), row.offset);
  return text;
}

std::string program_text(const std::vector<Graph>& programs) {
  std::string text;
  for (const Graph& graph : programs) text += print_graph(graph) + "\n";
  return text;
}

// The plan's programs as the pass leaves them.
std::string pass_dump(const Plan& plan, const Pass& wanted) {
  std::vector<Graph> programs;
  const AfterPass after = [&](const Pass& pass, const Graph& graph) {
    if (pass.id == wanted.id) programs.push_back(graph);
  };
  const Experiment& experiment = plan.request.workload.experiment;
  Graph train = build_micro_step(experiment, plan.variant, PassId::recompute, after);
  finish_programs(experiment, plan.variant, plan.request.target.device, std::move(train), Programs::all,
                  after);
  if (programs.empty())
    throw UsageError(formatted("--dump: no program of this plan goes through the pass '{}'", wanted.name));
  return program_text(programs);
}

std::string names_of_dumps() {
  std::string names = "graph, program, layout, table, or a pass:";
  for (const Pass& pass : passes()) names += (pass.id == kFirstPass ? " " : ", ") + std::string(pass.name);
  return names;
}

std::string graph_dump(const Plan& plan) {
  return print_graph(build_forward(plan.request.workload.experiment, plan.variant));
}

}  // namespace

namespace {

std::string basis_words(const DeviceDescription& device) {
  if (!device.card_name.empty()) return formatted(" (+-30 %, by the data sheet of the {})", device.card_name);
  return device.rates.calibrated ? "" : " (guessed: this machine is not calibrated)";
}

// Bytes per second of a disk that was not timed, and how they are measured; nothing if no disk is used.
std::string guessed_disk_words(const Plan& plan) {
  const DeviceRates& rates = plan.request.target.device.rates;
  if (plan.disk_bytes() == 0 || rates.disk_measured) return "";
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(),
                "disk speed guessed (reads %.1f GB/s, writes %.1f): plimsoll calibrate",
                rates.disk_read / 1e9, rates.disk_write / 1e9);
  return text.data();
}

nlohmann::ordered_json outside_json(const Plan& plan) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OutsidePart& part : plan.outside())
    list.push_back({{"name", part.name}, {"bytes", part.bytes}, {"uncertain_bytes", part.uncertain}});
  return list;
}

nlohmann::ordered_json graphs_json(const Plan& plan) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlannedGraphs& one : plan.graphs)
    list.push_back(
        {{"program", one.program},
         {"graphs", one.graphs},
         {"nodes", one.nodes},
         {"why_none", one.why.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(one.why)}});
  return list;
}

bool has_graphs(const Plan& plan) {
  return std::ranges::any_of(plan.graphs, [](const PlannedGraphs& one) { return one.graphs > 0; });
}

}  // namespace

std::string verdict_text(const Plan& plan) {
  const Budget& budget = plan.request.target.budget;
  const std::string disk =
      plan.disk_bytes() > 0 ? "   disk " + of_budget(plan.disk_bytes(), budget.disk_bytes) : "";
  const int64_t scratch_bytes = plan.request.workload.data ? plan.request.workload.data->scratch.bytes : 0;
  const std::string scratch =
      scratch_bytes > 0 ? formatted("   scratch {} of disk", format_bytes(scratch_bytes)) : "";
  const std::string indent(7, ' ');
  const std::string guess = guessed_disk_words(plan);
  return formatted("{}   {}{}{}\n{}{}\n{}{} a step, {}{}{}", plan.fits() ? "fits" : "does not fit",
                   memory_text(plan), disk, scratch, indent, run_words(plan), indent,
                   duration_words(plan.seconds_per_step), speed_words(plan.tokens_per_second()),
                   basis_words(plan.request.target.device),
                   guess.empty() ? "" : formatted("\n{}{}", indent, guess));
}

// Scores of the head that the task uses instead of the model's own; 0: none.
int64_t head_of(const Experiment& experiment) {
  return rule_of(experiment.task.task).scores ? experiment.task.outputs : 0;
}

std::string model_text(const Plan& plan) {
  const Experiment& experiment = plan.request.workload.experiment;
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%.1f",
                static_cast<double>(count_parameters(experiment.model, head_of(experiment))) / 1e6);
  return formatted("{}, {} M parameters", experiment.model.describe(), number.data());
}

std::string experiment_text(const Plan& plan) {
  const Experiment& experiment = plan.request.workload.experiment;
  const TaskRule& rule = rule_of(experiment.task.task);
  const std::string task =
      rule.scores || rule.pairs ? formatted("{} ({}) · ", to_string(rule.task), rule.unit) : "";
  return formatted("{}{} · {} · length {} · {}", task, method_text(experiment),
                   to_string(experiment.precision.compute), format_count(experiment.max_length),
                   split_text(plan));
}

std::string phases_text(const Plan& plan) {
  std::string text;
  for (const ProgramLayout& program : plan.layout.programs)
    text += formatted("{}{} {}", text.empty() ? "" : " · ", program.name,
                      format_bytes(phase_bytes(plan, program)));
  return text;
}

namespace {

// The budget for so many bytes of a process, as `memory` states it: of all that a host's memory is for.
int64_t stated_bytes(const Plan& plan, int64_t bytes) {
  return plan.request.target.own_memory ? bytes : bytes * plan.request.target.budget.sharing;
}

}  // namespace

std::string also_fits_text(const Plan& plan) {
  const Candidate& least = plan.smallest;
  const int64_t graphs = plan.request.choices.graphs == UseGraphs::on ? plan.graph_bytes() : 0;
  const int64_t bytes = memory_bytes(plan.request, least) + graphs;
  if (bytes >= plan.memory_bytes()) return "this is the smallest plan already";
  return formatted("budget down to {} ({}; {})", format_bytes_up(stated_bytes(plan, bytes)),
                   variant_words(plan.request.workload.experiment, least.variant), time_change(plan, least));
}

namespace {

// As an option of the command takes it.
std::string mib_text(int64_t bytes) { return std::to_string(ceil_div(bytes, kMiB)) + "MiB"; }

// Less memory for little more time.
std::string knee_text(const Plan& plan) {
  const int64_t bytes = stated_bytes(plan, memory_bytes(plan.request, *plan.knee));
  return formatted("{} would do, {} ({}): --memory {}", format_bytes_up(bytes), time_change(plan, *plan.knee),
                   variant_words(plan.request.workload.experiment, plan.knee->variant), mib_text(bytes));
}

// A desktop on the card: 0.3 to 1 GiB were seen. Cards of data centres have none, and of this machine's card
// what is free is known.
std::string display_text(const Plan& plan) {
  constexpr int64_t kDesktop = kGiB;
  const PlanRequest& request = plan.request;
  const bool may_have = request.target.device.card_name.starts_with("RTX") ||
                        request.target.device.card_name.starts_with("TITAN");
  const auto driver = std::ranges::find_if(
      request.target.device.outside, [](const OutsidePart& part) { return part.name.starts_with("driver"); });
  if (!may_have || driver == request.target.device.outside.end() || request.target.budget.device_free_bytes)
    return "";
  const std::optional<int64_t> all = memory_budget(request);
  if (!all || plan.memory_bytes() <= *all - kDesktop) return "";
  return formatted("a desktop on this card takes 0.3 to 1 GiB of it: --memory {} leaves enough for it",
                   mib_text(*all - kDesktop - driver->bytes - driver->uncertain));
}

}  // namespace

std::vector<ReportLine> facts(const Plan& plan) {
  const PlanRequest& request = plan.request;
  std::vector<ReportLine> list = {{"process", process_text(plan)}};
  if (const std::string text = shortage_here(plan); !text.empty()) list.push_back({"train", text});
  if (request.workload.experiment.ranks > 1) list.push_back({"devices", devices_text(plan)});
  if (plan.disk_bytes() > 0) list.push_back({"disk", disk_text(plan)});
  if (request.workload.data && request.workload.data->scratch.bytes > 0)
    list.push_back({"scratch", scratch_words(*request.workload.data)});
  if (plan.variant.keep_frozen)
    list.push_back(
        {"kept",
         formatted("outputs of the frozen blocks for each row, computed once: {} in total to compute, write "
                   "and read",
                   duration_words(plan.kept_seconds))});
  if (has_graphs(plan) || request.choices.graphs == UseGraphs::on)
    list.push_back({"graphs", graphs_words(plan.graphs)});
  if (plan.search_ended)
    list.push_back({"search", "ended at its limit of work; this is the best plan that it found"});
  if (request.target.own_memory && !request.target.budget.host_bytes && plan.host_arena_bytes() > 0)
    list.push_back({"host", "not limited: state the memory of that machine, such as --host-memory 16GiB"});
  if (!request.lossy.empty())
    list.push_back({"lossy", join(request.lossy, ", ") + ", as memory.allow permits: no lossless plan fits"});
  if (request.workload.data) list.push_back({"data", data_words(*request.workload.data)});
  if (request.workload.data)
    for (const std::string& text : request.workload.data->rendering) list.push_back({"rows", text});
  if (const std::string text = display_text(plan); !text.empty()) list.push_back({"display", text});
  if (plan.knee) list.push_back({"knee", knee_text(plan)});
  list.push_back({"also fits", also_fits_text(plan)});
  if (!plan.savings.empty()) list.push_back({"would save", savings_text(plan)});
  for (const Faster& faster : plan.faster) list.push_back({"faster", faster_text(plan, faster)});
  for (const RecipeNote& note : request.notes) list.push_back({"note", note.text});
  if (!request.target.device.rates.note.empty()) list.push_back({"note", request.target.device.rates.note});
  return list;
}

namespace {

std::string fact_text(const ReportLine& fact, size_t columns) {
  const std::string name = formatted("  {}{}", fact.name, std::string(11 - fact.name.size(), ' '));
  return formatted("{}{}\n", name, wrap(fact.text, std::string(name.size(), ' '), columns));
}

std::string head_text(const Plan& plan, size_t columns) {
  return formatted("{}\n\n  {}\n  {}\n\n", fitted(verdict_text(plan), columns),
                   wrap(model_text(plan), "  ", columns), wrap(experiment_text(plan), "  ", columns));
}

size_t lines_of(std::string_view text) { return static_cast<size_t>(std::ranges::count(text, '\n')); }

// Puts first the facts that must not be missed where not all facts have room.
std::vector<ReportLine> facts_by_weight(const Plan& plan) {
  std::vector<ReportLine> list = facts(plan);
  std::ranges::stable_partition(
      list, [](const ReportLine& fact) { return fact.name == "train" || fact.name == "lossy"; });
  return list;
}

}  // namespace

namespace {

// The options that state the variant, to paste: lines end in a backslash, and no option is broken.
std::string keys_text(const Plan& plan, size_t columns) {
  constexpr size_t kIndent = 13, kBackslash = 2;
  const std::string keys = " " + variant_keys_text(plan);
  std::string text = "  keys      ", line;
  size_t at = 0;
  while (at < keys.size()) {
    const size_t end = std::min(keys.find(" --set ", at + 1), keys.size());
    const std::string option = keys.substr(at, end - at);
    if (!line.empty() && kIndent + line.size() + option.size() + kBackslash > columns) {
      text += formatted("{} \\\n{}", line, std::string(kIndent - 1, ' '));
      line.clear();
    }
    line += option;
    at = end;
  }
  return formatted("{}{}\n", text, line);
}

}  // namespace

std::string report_text(const Plan& plan, size_t columns) {
  columns = std::min(columns, kWidestText);
  std::string text = formatted("{}{}\n", head_text(plan, columns), device_table(plan, columns));
  text += fact_text({"variant", variant_words(plan.request.workload.experiment, plan.variant)}, columns);
  if (plan.variant.offload.any()) text += keys_text(plan, columns);
  text += formatted("{}\n{}\n", fact_text({"phases", phases_text(plan)}, columns), host_table(plan));
  for (const ReportLine& fact : facts(plan)) text += fact_text(fact, columns);
  return text;
}

std::string brief_report_text(const Plan& plan, size_t columns, size_t rows) {
  columns = std::min(columns, kWidestText);
  const std::string head = head_text(plan, columns);
  const std::string variant =
      fact_text({"variant", variant_words(plan.request.workload.experiment, plan.variant)}, columns);
  constexpr size_t kBeside = 3;  // the command, the line that names --full, the next prompt
  const size_t capacity = rows - std::min(rows, lines_of(head) + lines_of(variant) + 1 + kBeside);
  std::string table = device_table(plan, columns);
  constexpr size_t kFewest = 3;
  for (size_t most = device_components(plan).size(); lines_of(table) > capacity && most > kFewest; --most)
    table = device_table(plan, columns, most - 1);
  std::string text = formatted("{}\n{}", table, variant);
  size_t left = capacity - std::min(capacity, lines_of(table));
  size_t notes = 0;
  for (const ReportLine& fact : facts_by_weight(plan)) {
    const bool matters = fact.name == "train" || fact.name == "lossy" || fact.name == "note";
    const std::string line = fact_text(fact, columns);
    if (matters && lines_of(line) <= left) {
      text += line;
      left -= lines_of(line);
    } else if (matters) {
      ++notes;
    }
  }
  const std::string more =
      notes == 0 ? "" : format_count(static_cast<int64_t>(notes)) + (notes == 1 ? " note, " : " notes, ");
  return formatted("{}{}  more       --full: {}phases, host, what else fits\n", head, text, more);
}

namespace {

// Seconds of a step by kind of op, the longest first, for comparison with a profile of the run.
nlohmann::ordered_json op_seconds_json(const Plan& plan) {
  const Filling filling =
      filling_of(plan.request.workload.experiment, plan.request.workload.run, plan.variant);
  TimeModel model(plan.request.target.device.rates, filling);
  std::map<std::string_view, double> seconds;
  for (const Graph& graph : plan.programs) {
    const double runs = runs_per_step(graph, plan.variant, filling);
    for (const Op& op : graph.ops())
      if (runs > 0 && !is_transfer(op.kind))
        seconds[to_string(op.kind)] += runs * model.seconds_of(graph, op);
  }
  std::vector<std::pair<std::string_view, double>> sorted(seconds.begin(), seconds.end());
  std::ranges::stable_sort(sorted, std::greater{}, &std::pair<std::string_view, double>::second);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [op, of_step] : sorted) list.push_back({{"op", op}, {"seconds_per_step", of_step}});
  return list;
}

}  // namespace

namespace {

const char* link_name(const Link& link) {
  return link.source == Link::Source::measured ? "measured"
         : link.source == Link::Source::stated ? "stated"
                                               : "guessed";
}

}  // namespace

std::string report_json(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  const PlanRequest& request = plan.request;
  const MicroCapacity capacity = request.workload.experiment.train_capacity(plan.variant);
  Json phases = Json::array();
  for (const ProgramLayout& program : plan.layout.programs) {
    phases.push_back({{"name", program.name},
                      {"transient_bytes", program.transient_bytes},
                      {"lower_bound_bytes", program.lower_bound_bytes}});
  }
  Json savings = Json::array();
  for (const Saving& saving : plan.savings)
    savings.push_back({{"means", saving.means}, {"device_bytes", saving.device_bytes}});
  const auto brief = [&](const Candidate& candidate) {
    return Json{{"device_bytes", candidate.arena_bytes},
                {"host_bytes", request.target.host.total() + candidate.host_bytes},
                {"memory_bytes", memory_bytes(request, candidate)},
                {"disk_bytes", candidate.disk_bytes},
                {"seconds_per_step", candidate.seconds_per_step},
                {"variant", variant_words(request.workload.experiment, candidate.variant)}};
  };
  Json json = {
      {"feasible", plan.fits()},
      {"device",
       {{"kind", request.target.device.kind},
        {"budget_bytes", optional_bytes(request.target.budget.device_bytes)},
        {"gpu", request.target.device.card_name.empty() ? Json() : Json(request.target.device.card_name)},
        {"outside", outside_json(plan)},
        {"outside_bytes", outside_bytes(request.target.device) + plan.graph_bytes()},
        {"graphs", graphs_json(plan)},
        {"arena_bytes", plan.arena_bytes()},
        {"persistent_bytes", plan.layout.persistent_bytes},
        {"transient_bytes", plan.layout.transient_bytes},
        {"lower_bound_bytes", plan.layout.lower_bound_bytes()},
        {"peak", peak_place(plan)},
        {"components", components_json(device_components(plan))},
        {"phases", phases}}},
      {"host",
       {{"budget_bytes", optional_bytes(request.target.budget.host_bytes)},
        {"planned_peak_bytes", plan.host_bytes()},
        {"components", components_json(plan.host_components())}}},
      {"process",
       {{"budget_bytes", optional_bytes(request.target.budget.process_bytes)},
        {"planned_peak_rss_bytes", plan.process_peak_bytes()},
        {"planned_share_bytes", plan.process_share_bytes()},
        {"planned_data_bytes", plan.data_bytes()}}},
      {"variant",
       {{"micro_batch", plan.variant.micro_batch},
        {"micro_tokens", capacity.by_tokens() ? Json(plan.variant.micro_tokens) : Json()},
        {"accumulation", plan.variant.accumulation},
        {"share_prefixes", request.workload.experiment.shares_prefixes},
        {"micro_steps", plan.micro_steps},
        {"fill", plan.fill},
        {"effective_batch", request.workload.experiment.effective_batch},
        {"eval_micro_batch", plan.variant.eval_micro_batch},
        {"loss_chunk", plan.variant.loss_chunk},
        {"offload_to", offload_targets_json(plan.variant.offload.targets())},
        {"prefetch", plan.variant.offload.any() ? Json(plan.variant.offload.prefetch) : Json()},
        {"keys", variant_keys(plan)},
        {"words", variant_words(request.workload.experiment, plan.variant)},
        {"max_length", request.workload.experiment.max_length},
        {"threads", request.target.device.threads},
        {"isa", std::string(to_string(request.target.device.isa))}}},
      {"predicted",
       {{"seconds_per_step", plan.seconds_per_step},
        {"tokens_per_second", plan.tokens_per_second()},
        {"disk_traffic_bytes_per_step", candidate_of(plan).disk_traffic},
        {"calibrated", request.target.device.rates.calibrated},
        {"disk_measured", request.target.device.rates.disk_measured},
        {"ops", op_seconds_json(plan)}}},
      {"run", run_json(plan)},
      {"faster", faster_json(plan)},
      {"disk",
       {{"budget_bytes", optional_bytes(request.target.budget.disk_bytes)},
        {"planned_bytes", plan.disk_bytes()},
        {"components", components_json(disk_components(plan))}}},
      {"notes", notes_json(request.notes)},
      {"lossy", request.lossy},
      {"data", data_json(request.workload.data)},
      {"tie", request.choices.tie},
      {"knee", plan.knee ? brief(*plan.knee) : Json()},
      {"smallest", brief(plan.smallest)},
      {"search_ended", plan.search_ended},
      {"would_save", savings}};
  if (const int64_t ranks = request.workload.experiment.ranks; ranks > 1)
    json["devices"] = {{"count", ranks},
                       {"device_bytes_each", plan.memory_bytes()},
                       {"bytes_each", plan.process_peak_bytes()},
                       {"bytes_together", plan.bytes_together()},
                       {"bytes_of_machine", plan.node_bytes()},
                       {"shared_bytes", plan.layout.shared.bytes},
                       {"seconds_per_step", plan.seconds_per_step},
                       {"shard", to_string(request.workload.experiment.optimizer.shard)},
                       {"sent_bytes_per_step", plan.sent_bytes},
                       {"sending_seconds_per_step", plan.sending_seconds},
                       {"exchange", request.target.exchange == ExchangeWay::nccl ? "nccl" : "staged"},
                       {"exchange_bytes", request.target.exchange_bytes},
                       {"link_bytes_per_second", request.target.link.bytes_per_second},
                       {"link", link_name(request.target.link)}};
  return json_text(json);
}

std::string dump(const Plan& plan, const std::string& what) {
  if (what == "graph") return graph_dump(plan);
  if (what == "layout") return layout_dump(plan);
  if (what == "table") return table_dump(plan);
  if (what == "program") return program_text(plan.programs);
  const Pass* pass = find_pass(what);
  if (pass == nullptr) throw UsageError(formatted("--dump: '{}' is not one of {}", what, names_of_dumps()));
  return pass_dump(plan, *pass);
}

}  // namespace plimsoll
