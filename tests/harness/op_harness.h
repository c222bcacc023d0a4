// Runs a case's graph on a device, in one buffer with guard bytes around every tensor, and compares.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/description.h"
#include "harness/op_case.h"
#include "ops/cpu_kernel.h"
#include "ops/rule.h"

namespace plimsoll::harness {

// Bytes around every tensor that nothing may touch.
inline constexpr size_t kGuard = 64;

// The instruction sets that this CPU has.
std::vector<Isa> isas_here();

// The case as a graph of one element type, checked against the rules.
Graph make_graph(const OpCase& c, DType dtype);
// One list of values per tensor, already rounded to its element type: given ones, the step values, and random
// ones from a fixed generator.
std::vector<Values> make_values(const Graph& graph, const OpCase& c);
// Rounds to nearest even.
double rounded(double x, DType dtype);

// Output `reuse` of op `op` lies where the input lies.
struct Sharing {
  size_t op;
  Reuse reuse;
};
// The operands that the last op of a graph may update in place.
std::vector<Sharing> sharings(const Graph& graph);

struct OpRun {
  std::vector<Values> values;                 // by tensor
  std::vector<std::vector<std::byte>> bytes;  // by tensor
  std::vector<std::string> faults;            // guards or inputs that were written to
};
using AddressOf = std::function<std::byte*(TensorId)>;
// `run` runs an op of the graph with its workspace, which `device` decides.
OpRun run_ops(const Graph& graph, const std::vector<Values>& values, const DeviceDescription& device,
              const std::function<void(const Graph&, const Op&, const AddressOf&)>& run,
              std::optional<Sharing> sharing);
OpRun run_cpu(const Graph& graph, const std::vector<Values>& values, const CpuSettings& settings,
              std::optional<Sharing> sharing = std::nullopt);

// "" or the first element that is off: |got - want| > relative * |want| + absolute * rms(want).
struct Tolerance {
  double relative, absolute;
};
// Fails the test for tensors, but metrics, that do not hold what they were given.
void expect_nothing_changed(const Graph& graph, const std::vector<Values>& given, const OpRun& run);
// Fails the test for tensors that `op` writes and that differ in a bit.
void expect_same_bits(const Graph& graph, const Op& op, const OpRun& a, const OpRun& b);
Tolerance tolerance_of(DType dtype, double slack);
std::string compare(const std::string& name, const Values& got, const Values& want, Tolerance tolerance);

}  // namespace plimsoll::harness
