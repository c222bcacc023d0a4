#include "plan/graphs.h"

#include <algorithm>

#include "base/units.h"
#include "ops/gpu_launches.h"
#include "ops/transfer.h"

namespace plimsoll {
namespace {

// What makes a graph of no use; empty: nothing.
std::string why_none(const Graph& program, const DeviceDescription& device, const ProgramUse& use,
                     UseGraphs asked) {
  constexpr double kWorth = 0.01;
  if (moves_disk_bytes(program)) return "what a disk moves needs the host";
  if (asked == UseGraphs::on) return "";
  const double gap = launch_gap(program, device, use.seconds);
  if (gap == 0) return "the host launches its calls faster than the card computes them";
  if (gap < kWorth * use.beside) return "what the host's launches take longer is less than 1 % of a step";
  if (device.library_products && !use.repeats)
    return "its rows differ from run to run, and a library's products are cut to them on the host";
  return "";
}

}  // namespace

double launch_gap(const Graph& program, const DeviceDescription& device, double card_seconds) {
  if (device.launch_seconds == 0) return 0;
  const auto launches = static_cast<double>(gpu_launches(program, device.library_products));
  return std::max(0.0, launches * device.launch_seconds - card_seconds);
}

PlannedGraphs plan_graphs(const Graph& program, const DeviceDescription& device, const ProgramUse& use,
                          UseGraphs asked) {
  PlannedGraphs planned{program.name(), 0, gpu_launches(program, device.library_products), ""};
  if (device.backend != Backend::gpu) {
    planned.why = "the device makes none";
  } else if (asked == UseGraphs::off) {
    planned.why = "memory.graphs: off";
  } else {
    planned.why = why_none(program, device, use, asked);
  }
  // Kernels here read on the card what a library is told on the host: one graph serves all runs.
  if (planned.why.empty()) planned.graphs = device.library_products ? use.graphs : 1;
  return planned;
}

OutsidePart graphs_part(const std::vector<PlannedGraphs>& graphs, const DeviceDescription& device) {
  int64_t nodes = 0;
  for (const PlannedGraphs& one : graphs) nodes += one.all_nodes();
  return {"graphs of " + format_count(nodes) + " nodes" + (device.graph_node.measured ? ", measured" : ""),
          nodes * device.graph_node.bytes, nodes * device.graph_node.uncertain};
}

std::string graphs_words(const std::vector<PlannedGraphs>& graphs) {
  std::string words, without;
  for (const PlannedGraphs& one : graphs) {
    if (one.graphs == 0)
      without += (without.empty() ? "" : "; ") + ("none of " + one.program) + ": " + one.why;
    else
      words += (words.empty() ? "" : ", ") + std::to_string(one.graphs) + " of " + one.program + " (" +
               format_count(one.nodes) + " nodes" + (one.graphs > 1 ? " each)" : ")");
  }
  return words + (words.empty() || without.empty() ? "" : "; ") + without;
}

}  // namespace plimsoll
