// plimsoll_op_tool GRAPH: runs the ops of a graph in text (docs/reference/formats.md) once. Reads the values of all
// declared tensors as raw bytes, in the order of their declaration; writes all outputs of all ops in the same
// way. Used by tests/parity/ops.py.
#include <cstddef>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "cpu/describe.h"
#include "cpu/isa.h"
#include "ops/cpu_kernel.h"
#include "ops/rule.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

struct alignas(64) Line {
  std::byte bytes[64] = {};
};

int main(const std::vector<std::string>& args) {
  if (args.size() != 1) throw UsageError("GRAPH");
  std::ifstream file(args[0]);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const Graph parsed = parse_graph(text);
  verify(parsed);
  const CpuSettings settings{detect_isa(), 2};
  const Graph graph = assign_scratch(parsed, describe_cpu(settings.isa, settings.threads));
  std::vector<std::vector<Line>> memory;
  for (const Tensor& tensor : graph.tensors())
    memory.emplace_back(static_cast<size_t>(tensor.bytes()) / sizeof(Line) + 1);
  const auto at = [&](TensorId id) { return memory[static_cast<size_t>(id)].front().bytes; };
  for (size_t i = 0; i < parsed.tensors().size(); ++i)
    if (parsed.tensors()[i].role != Role::activation)
      std::cin.read(reinterpret_cast<char*>(at(static_cast<TensorId>(i))), parsed.tensors()[i].bytes());
  if (!std::cin) throw UsageError("the input ends before the last tensor");
  for (const Op& op : graph.ops()) bind_cpu(CpuBinding(graph, op, settings, at))();
  for (const Op& op : graph.ops())
    for (const TensorId id : op.outputs)
      if (id != kNoTensor) std::cout.write(reinterpret_cast<const char*>(at(id)), graph.tensor(id).bytes());
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  try {
    return plimsoll::main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "plimsoll_op_tool: " << error.what() << '\n';
    return 2;
  }
}
