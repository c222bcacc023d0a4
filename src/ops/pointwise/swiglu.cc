// swiglu: s = silu(gate) * up. The gradient may overwrite gate and up, which no op reads after it.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::swiglu;
  const Tensor& gate = input_tensor(g, op, at::gate);
  require(gate.shape == input_tensor(g, op, at::up).shape, g, op, "swiglu: shapes");
  return {{"", gate.shape, gate.dtype}};
}

// gate, up, d_s -> d_gate, d_up
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::swiglu_grad;
  const Tensor& gate = input_tensor(g, op, at::gate);
  return {{".gate", gate.shape, gate.dtype}, {".up", gate.shape, gate.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::swiglu;
  if (!ctx.wants(op.inputs[at::gate]) && !ctx.wants(op.inputs[at::up])) return;
  const auto out = ctx.emit(OpKind::swiglu_grad,
                            {op.inputs[at::gate], op.inputs[at::up], ctx.gradient_of(op.outputs[at::s])}, {},
                            {kNewTensor, kNewTensor}, "d_" + ctx.graph().tensor(op.outputs[at::s]).name);
  if (ctx.wants(op.inputs[at::gate]))
    ctx.add_gradient(op.inputs[at::gate], out[operand::swiglu_grad::d_gate]);
  if (ctx.wants(op.inputs[at::up])) ctx.add_gradient(op.inputs[at::up], out[operand::swiglu_grad::d_up]);
}

}  // namespace

const OpRule swiglu_rule{
    .kind = OpKind::swiglu,
    .infer = infer,
    .gradient = gradient,
    .reuse = {{operand::swiglu::s, operand::swiglu::gate}, {operand::swiglu::s, operand::swiglu::up}},
    .recompute = RecomputeClass::gate};
const OpRule swiglu_grad_rule{.kind = OpKind::swiglu_grad,
                              .infer = infer_grad,
                              .reuse = {{operand::swiglu_grad::d_gate, operand::swiglu_grad::gate},
                                        {operand::swiglu_grad::d_up, operand::swiglu_grad::up}}};

}  // namespace plimsoll
