// The plan of a run: the variant that fits, its programs, their layout, and what the report says about them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layout/program_layout.h"
#include "plan/experiment.h"

namespace plimsoll {

// A named part of a memory budget.
struct Component {
  std::string name;
  int64_t bytes = 0;
};

// What the process needs beside the arena, stated by those who will allocate it.
struct HostNeeds {
  std::vector<Component> components;  // resident at the peak
  int64_t baseline_data_bytes = 0;    // VmData of the process when planning began
  int64_t extra_data_bytes = 0;       // counted by VmData beyond the components: thread stacks at full size
  [[nodiscard]] int64_t total() const;
};

// Budgets in bytes; none: not limited.
struct Budget {
  std::optional<int64_t> device_bytes;
  std::optional<int64_t> host_bytes;
  std::string device_source;  // "memory.device: 5.1GiB", "90 % of 21.3 GiB free"
  std::string host_source;
  int64_t free_bytes = 0;
};

struct PlanRequest {
  Experiment experiment;
  std::optional<int64_t> micro_batch;  // the recipe's; none: the planner chooses
  std::optional<int64_t> eval_micro_batch;
  std::optional<int64_t> loss_chunk;
  DeviceDescription device;
  Budget budget;
  HostNeeds host;
  LayoutOptions layout;
};

// A variant with what it costs.
struct Candidate {
  Variant variant;
  int64_t arena_bytes = 0;  // lower bound, until it is laid out
  double seconds_per_step = 0;
};

struct Plan {
  PlanRequest request;
  Variant variant;
  std::vector<Graph> programs;
  ArenaLayout layout;
  double seconds_per_step = 0;
  std::vector<Candidate> candidates;  // all variants that were weighed, fastest first

  [[nodiscard]] int64_t arena_bytes() const { return layout.arena_bytes(); }
  [[nodiscard]] int64_t process_peak_bytes() const { return arena_bytes() + request.host.total(); }
  // An upper bound in the kernel's VmData terms (decisions.md 12).
  [[nodiscard]] int64_t data_bytes() const;
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] bool fits_device() const;
  [[nodiscard]] bool fits_host() const;
  [[nodiscard]] bool fits() const { return fits_device() && fits_host(); }
};

// The fastest variant that fits; where none does, the smallest one, whose fits() is false. The layout is
// validated.
Plan make_plan(const PlanRequest& request);

// Device bytes by component, largest meaning first; they sum to the arena. Transient bytes are those alive at
// the peak of the largest program, and what the layout adds to them.
std::vector<Component> device_components(const Plan& plan);

// "layers.27 backward, mlp": where the largest program has its peak.
std::string peak_place(const Plan& plan);

// plan/report.cc
std::string report_text(const Plan& plan);
std::string report_json(const Plan& plan);
// One of "graph", "program", "layout", "table". Throws UsageError for another.
std::string dump(const Plan& plan, const std::string& what);
// The message of a refusal: by how much, where, and what would fit.
std::string refusal_text(const Plan& plan);

}  // namespace plimsoll
