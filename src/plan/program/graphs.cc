#include "plan/program/graphs.h"

#include <algorithm>

#include "base/format.h"
#include "base/units.h"
#include "ops/optimizer/pieces.h"
#include "ops/rule.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// The reason why a graph is of no use; null: it is.
const char* why_none(const ProgramCalls& calls, const DeviceDescription& device, const ProgramUse& use,
                     UseGraphs requested) {
  constexpr double kWorth = 0.01;
  if (device.backend != Backend::gpu) return "the device has no CUDA graphs";
  if (requested == UseGraphs::off) return "memory.graphs: off";
  if (calls.moves_disk) return "transfers from a disk need the host";
  if (use.exchanges) return "what devices exchange between its ops needs the host";
  if (requested == UseGraphs::on) return nullptr;
  const double gap = launch_gap(calls.calls, device, use.seconds);
  if (gap == 0) return "the host launches its calls faster than the card computes them";
  if (gap < kWorth * use.beside) return "the host's launches add less than 1 % to a step";
  if (device.library_products && !use.repeats)
    return "its number of rows changes from run to run, and the host sets the sizes of the "
           "library's matrix products";
  return nullptr;
}

// Kernels here read on the card what a library gets from the host: one graph serves all runs.
int number_of_graphs(const DeviceDescription& device, const ProgramUse& use) {
  return device.library_products ? use.graphs : 1;
}

// All micro-steps have as many rows, and as many with a label.
bool are_alike(const Filling& filling) {
  constexpr double kAll = 0.99;
  return filling.tokens > kAll && filling.targets > kAll;
}

}  // namespace

ProgramCalls calls_of(const Graph& program, const DeviceDescription& device) {
  return {gpu_launches(program, device.library_products), moves_disk_bytes(program)};
}

double launch_gap(int64_t calls, const DeviceDescription& device, double card_seconds) {
  return std::max(0.0, static_cast<double>(calls) * device.launch_seconds - card_seconds);
}

double launch_gap(const Graph& program, const DeviceDescription& device, double card_seconds) {
  if (device.launch_seconds == 0) return 0;
  return launch_gap(gpu_launches(program, device.library_products), device, card_seconds);
}

// The first micro-step of a step overwrites gradients.
ProgramUse use_of(const Graph& program, const Variant& variant, const Filling& filling) {
  return {.graphs = program.name() == kTrainProgram && variant.accumulation > 1 ? 2 : 1,
          .repeats = program.name() == kUpdateProgram || are_alike(filling),
          .exchanges = exchanges_between_ops(program)};
}

LaunchCost launch_cost(std::span<const ProgramRun> programs, const DeviceDescription& device,
                       UseGraphs requested) {
  LaunchCost cost;
  double step = 0;
  for (const ProgramRun& program : programs) {
    const double gap = launch_gap(program.calls.calls, device, program.seconds);
    step += program.runs * (program.seconds + gap);
    cost.seconds += program.runs * gap;
  }
  int64_t nodes = 0;
  for (const ProgramRun& program : programs) {
    ProgramUse use = program.use;
    use.seconds = program.seconds;
    use.beside = program.runs > 0 ? step / program.runs : program.seconds;
    if (why_none(program.calls, device, use, requested) != nullptr) continue;
    nodes += number_of_graphs(device, use) * program.calls.calls;
    cost.seconds -= program.runs * launch_gap(program.calls.calls, device, program.seconds);
  }
  cost.graph_bytes = nodes * (device.graph_node.bytes + device.graph_node.uncertain);
  return cost;
}

PlannedGraphs plan_graphs(const Graph& program, const DeviceDescription& device, const ProgramUse& use,
                          UseGraphs requested) {
  const ProgramCalls calls = calls_of(program, device);
  const char* why = why_none(calls, device, use, requested);
  return {program.name(), why == nullptr ? number_of_graphs(device, use) : 0, calls.calls,
          why == nullptr ? "" : why};
}

OutsidePart graphs_part(const std::vector<PlannedGraphs>& graphs, const DeviceDescription& device) {
  int64_t nodes = 0;
  for (const PlannedGraphs& one : graphs) nodes += one.all_nodes();
  return {
      formatted("graphs of {} nodes{}", format_count(nodes), device.graph_node.measured ? ", measured" : ""),
      nodes * device.graph_node.bytes, nodes * device.graph_node.uncertain};
}

std::string graphs_words(const std::vector<PlannedGraphs>& graphs) {
  std::string words, without;
  for (const PlannedGraphs& one : graphs) {
    if (one.graphs == 0)
      without += formatted("{}none of {}: {}", without.empty() ? "" : "; ", one.program, one.why);
    else
      words += formatted("{}{} of {} ({} nodes{}", words.empty() ? "" : ", ", one.graphs, one.program,
                         format_count(one.nodes), one.graphs > 1 ? " each)" : ")");
  }
  return words + (words.empty() || without.empty() ? "" : "; ") + without;
}

}  // namespace plimsoll
