#include "passes/noise.h"

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "ops/step_values.h"

namespace plimsoll {
namespace {

// An axis's input of row lengths: for each token the length of its sequence.
TensorId row_lengths(Graph& graph, AxisId axis) {
  const std::string name = graph.axis_input(axis, "row_lengths");
  const TensorId found = graph.find(name);
  if (found != kNoTensor) return found;
  const Shape tokens = graph.tensor(graph.find(graph.axis_input(axis, "positions"))).shape;
  return graph.add_tensor({name, tokens, DType::i32, Role::input});
}

}  // namespace

Graph add_noise(Graph graph, double alpha) {
  const std::vector<Op> ops = std::move(graph.ops());
  graph.ops().clear();
  bool any = false;
  for (Op op : ops) {
    const bool of_tokens =
        op.kind == OpKind::embedding &&
        op.inputs[operand::embedding::ids] == graph.find(graph.axis_input(op.axis, "input_ids"));
    if (!of_tokens) {
      graph.ops().push_back(std::move(op));
      continue;
    }
    any = true;
    const auto input = [&](const char* name) { return graph.find(graph.axis_input(op.axis, name)); };
    Op noise;
    noise.kind = OpKind::embedding_noise;
    noise.block = op.block;
    noise.axis = op.axis;
    noise.scope = op.scope + ".noise";
    noise.attrs = {{"alpha", alpha}};
    noise.outputs = {op.outputs[operand::embedding::h]};
    noise.inputs = {kNoTensor, input("samples"), input("positions"), row_lengths(graph, op.axis),
                    graph.find(kStepTensor)};
    op.outputs[operand::embedding::h] = kNewTensor;
    const std::string scope = op.scope;
    noise.inputs[operand::embedding_noise::x] = emit(graph, std::move(op), scope + ".clean").front();
    emit(graph, std::move(noise), "");
  }
  check_internal(any, "add_noise: a model without embeddings of its tokens");
  return graph;
}

}  // namespace plimsoll
