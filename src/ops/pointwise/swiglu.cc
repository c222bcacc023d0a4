// swiglu: s = silu(gate) * up. The gradient may overwrite gate and up, which nobody reads after it.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& gate = input_tensor(g, op, 0);
  require(gate.shape == input_tensor(g, op, 1).shape, g, op, "swiglu: shapes");
  return {{"", gate.shape, gate.dtype}};
}

// gate, up, d_s -> d_gate, d_up
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  const Tensor& gate = input_tensor(g, op, 0);
  return {{".gate", gate.shape, gate.dtype}, {".up", gate.shape, gate.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  if (!ctx.wants(op.inputs[0]) && !ctx.wants(op.inputs[1])) return;
  const auto out = ctx.emit(OpKind::swiglu_grad, {op.inputs[0], op.inputs[1], ctx.gradient_of(op.outputs[0])},
                            {}, {kNewTensor, kNewTensor}, "d_" + ctx.graph().tensor(op.outputs[0]).name);
  if (ctx.wants(op.inputs[0])) ctx.add_gradient(op.inputs[0], out[0]);
  if (ctx.wants(op.inputs[1])) ctx.add_gradient(op.inputs[1], out[1]);
}

}  // namespace

const OpRule swiglu_rule{.kind = OpKind::swiglu,
                         .infer = infer,
                         .gradient = gradient,
                         .reuse = {{0, 0}, {0, 1}},
                         .recompute = RecomputeClass::gate};
const OpRule swiglu_grad_rule{.kind = OpKind::swiglu_grad, .infer = infer_grad, .reuse = {{0, 0}, {1, 1}}};

}  // namespace plimsoll
