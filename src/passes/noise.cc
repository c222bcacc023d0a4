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

// Returns whether an op makes what a module of embeddings gives for tokens: its rows, or those times its factor.
bool gives_embeddings(const Graph& graph, const std::vector<Op>& ops, size_t at) {
  const Op& op = ops[at];
  const auto is_scaled_by = [](const Op& rows, const Op& next) {
    return next.kind == OpKind::scale && next.scope == rows.scope &&
           next.inputs[operand::scale::x] == rows.outputs[operand::embedding::h];
  };
  const auto of_tokens = [&](const Op& rows) {
    return rows.kind == OpKind::embedding &&
           rows.inputs[operand::embedding::ids] == graph.find(graph.axis_input(rows.axis, "input_ids"));
  };
  if (of_tokens(op)) return at + 1 == ops.size() || !is_scaled_by(op, ops[at + 1]);
  return at > 0 && of_tokens(ops[at - 1]) && is_scaled_by(ops[at - 1], op);
}

}  // namespace

Graph add_noise(Graph graph, double alpha) {
  const std::vector<Op> ops = std::move(graph.ops());
  graph.ops().clear();
  bool any = false;
  for (size_t at = 0; at < ops.size(); ++at) {
    Op op = ops[at];
    if (!gives_embeddings(graph, ops, at)) {
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
    noise.outputs = {op.outputs.front()};
    noise.inputs = {kNoTensor, input("samples"), input("positions"), row_lengths(graph, op.axis),
                    graph.find(kStepTensor)};
    op.outputs.front() = kNewTensor;
    const std::string scope = op.scope;
    noise.inputs[operand::embedding_noise::x] = emit(graph, std::move(op), scope + ".clean").front();
    emit(graph, std::move(noise), "");
  }
  check_internal(any, "add_noise: a model without embeddings of its tokens");
  return graph;
}

}  // namespace plimsoll
