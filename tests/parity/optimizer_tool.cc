// plimsoll_optimizer_tool OPTIMIZER ROWS COLUMNS STEPS [KEY=NUMBER ...]: updates one f32 weight (a vector
// where ROWS is 0) by the ops that training runs. Reads the weight and then a gradient a step as raw f32;
// writes, after each step, the weight and the optimizer's states as raw bytes. Keys: lr, beta1, beta2, eps,
// weight_decay, momentum. Used by tests/parity/optimizers.py.
#include <cstddef>
#include <iostream>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "cpu/describe.h"
#include "cpu/isa.h"
#include "ops/cpu_kernel.h"
#include "ops/step_values.h"
#include "passes/train.h"

namespace plimsoll {
namespace {

constexpr const char* kWeight = "weight";

OptimizerKind parse_kind(const std::string& name) {
  const OptimizerTraits* found = find_optimizer(name);
  if (found == nullptr) throw UsageError("no optimizer named " + name);
  return found->kind;
}

// Tensors of a graph, zero at first, each in cache lines of its own.
class Memory {
 public:
  explicit Memory(const Graph& graph) : graph_(graph) {
    for (const Tensor& tensor : graph.tensors())
      lines_.emplace_back(static_cast<size_t>(tensor.bytes()) / sizeof(Line) + 1);
  }
  std::byte* at(TensorId id) { return lines_[static_cast<size_t>(id)].front().bytes; }
  void read(TensorId id) { std::cin.read(reinterpret_cast<char*>(at(id)), graph_.tensor(id).bytes()); }
  void write(TensorId id) {
    std::cout.write(reinterpret_cast<const char*>(at(id)), graph_.tensor(id).bytes());
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  const Graph& graph_;
  std::vector<std::vector<Line>> lines_;
};

void run(OptimizerOptions options, double lr, const Shape& shape, int64_t steps) {
  Graph train("train");
  const ParameterInfo facts{.decays = shape.rank() > 1};
  train.add_tensor({kWeight, shape, DType::f32, Role::trainable_weight, Space::device, kNoBlock, facts});
  train.add_tensor({gradient_name(kWeight), shape, DType::f32, Role::gradient});
  options.max_grad_norm = 0;
  const CpuSettings settings{detect_isa(), 2};
  const Graph update =
      assign_scratch(build_update(train, {}, options), describe_cpu(settings.isa, settings.threads));
  Memory memory(update);
  std::vector<BoundCall> calls;
  for (const Op& op : update.ops())
    calls.push_back(bind_cpu(CpuBinding(update, op, settings, [&](TensorId id) { return memory.at(id); })));
  auto* const values = reinterpret_cast<double*>(memory.at(update.find(kStepTensor)));
  values[static_cast<int>(StepValue::learning_rate)] = lr;
  memory.read(update.find(kWeight));
  for (int64_t step = 1; step <= steps; ++step) {
    memory.read(update.find(gradient_name(kWeight)));
    if (!std::cin) throw UsageError("the input ends before the last gradient");
    values[static_cast<int>(StepValue::optimizer_step)] = static_cast<double>(step);
    for (const BoundCall& call : calls) call();
    for (const TensorId id : update.ops().back().outputs)
      if (id != kNoTensor) memory.write(id);
  }
}

int main(const std::vector<std::string>& args) {
  if (args.size() < 4) throw UsageError("OPTIMIZER ROWS COLUMNS STEPS [KEY=NUMBER ...]");
  OptimizerOptions options;
  options.kind = parse_kind(args[0]);
  double lr = 1e-3;
  const std::map<std::string, double*> keys = {{"lr", &lr},
                                               {"beta1", &options.beta1},
                                               {"beta2", &options.beta2},
                                               {"eps", &options.eps},
                                               {"weight_decay", &options.weight_decay},
                                               {"momentum", &options.momentum}};
  for (size_t i = 4; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const auto key = keys.find(args[i].substr(0, equals));
    if (equals == std::string::npos || key == keys.end()) throw UsageError("unknown: " + args[i]);
    *key->second = std::stod(args[i].substr(equals + 1));
  }
  const int64_t rows = std::stoll(args[1]);
  const int64_t columns = std::stoll(args[2]);
  run(options, lr, rows == 0 ? Shape{columns} : Shape{rows, columns}, std::stoll(args[3]));
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  try {
    return plimsoll::main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "plimsoll_optimizer_tool: " << error.what() << '\n';
    return 2;
  }
}
