// Chooses which programs of a run are captured as graphs (runtime/program_graphs.h), as worth their memory,
// and counts that memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/description.h"
#include "graph/graph.h"
#include "plan/program/time_model.h"

namespace plimsoll {

// A rule for capturing graphs: where a host is predicted to launch slower than the card computes, always, or
// never.
enum class UseGraphs : uint8_t { automatic, on, off };

// The graphs of one program.
struct PlannedGraphs {
  std::string program;
  int graphs = 0;     // that a run may make
  int64_t nodes = 0;  // of one, at the most
  std::string why;    // there are none
  [[nodiscard]] int64_t all_nodes() const { return graphs * nodes; }
};

// The launches of a host for one run of a program.
struct ProgramCalls {
  int64_t calls = 0;
  bool moves_disk = false;
};
ProgramCalls calls_of(const Graph& program, const DeviceDescription& device);

// The use of a program, as far as graphs go.
struct ProgramUse {
  int graphs = 1;          // that differ, where it is always run with as many rows
  bool repeats = true;     // whether it is: a library's products are cut to them on the host
  bool exchanges = false;  // ranks exchange data between its ops
  double seconds = 0;      // of the card, for one run
  double beside = 0;       // what a gain is measured by: a step's seconds for each of its runs
};

// Seconds by which the host takes longer to launch a program's calls than the card to compute them, in one
// run; 0 where it does not, or no device with launches is described.
double launch_gap(int64_t calls, const DeviceDescription& device, double card_seconds);
double launch_gap(const Graph& program, const DeviceDescription& device, double card_seconds);

// The use of a program of a step, but for its seconds.
ProgramUse use_of(const Graph& program, const Variant& variant, const Filling& filling);

// A program as a step runs it, for those who weigh variants by numbers alone.
struct ProgramRun {
  double runs = 0;     // in a step, on average
  double seconds = 0;  // of the card, for one run
  ProgramCalls calls;
  ProgramUse use;
};
// The cost of launches in a step: the seconds that they add, and with graphs the bytes that those take.
struct LaunchCost {
  double seconds = 0;
  int64_t graph_bytes = 0;
};
LaunchCost launch_cost(std::span<const ProgramRun> programs, const DeviceDescription& device,
                       UseGraphs requested);

// No graphs on devices that make none.
PlannedGraphs plan_graphs(const Graph& program, const DeviceDescription& device, const ProgramUse& use,
                          UseGraphs requested);

// Memory of the card that graphs take, as a part of what is outside the arena; 0 bytes: nothing.
OutsidePart graphs_part(const std::vector<PlannedGraphs>& graphs, const DeviceDescription& device);
// "2 of micro-step (612 nodes each), 1 of update (89); none of evaluation: why"
std::string graphs_words(const std::vector<PlannedGraphs>& graphs);

}  // namespace plimsoll
