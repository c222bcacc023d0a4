// sigmoid_gate: y = x * sigmoid(gate), by element; the sigmoid is rounded to x's type, then the product. The
// gradient makes it again.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

void require_shapes(const Graph& g, const Op& op) {
  using at = operand::sigmoid_gate;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& gate = input_tensor(g, op, at::gate);
  require(x.shape.rank() == 2 && gate.shape == x.shape, g, op, "sigmoid_gate: shapes");
  require(gate.dtype == x.dtype, g, op, "sigmoid_gate: types");
}

std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::sigmoid_gate;
  require_shapes(g, op);
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", x.shape, x.dtype}};
}

// -> d_x?, d_gate?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::sigmoid_gate_grad;
  require_shapes(g, op);
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& gate = input_tensor(g, op, at::gate);
  require(input_tensor(g, op, at::d_y).shape == x.shape, g, op, "sigmoid_gate_grad: d_y");
  return {{".x", x.shape, x.dtype}, {".gate", gate.shape, gate.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::sigmoid_gate;
  const TensorId x = op.inputs[at::x], gate = op.inputs[at::gate];
  const bool wants_x = ctx.wants(x), wants_gate = ctx.wants(gate);
  if (!wants_x && !wants_gate) return;
  const auto out = ctx.emit(OpKind::sigmoid_gate_grad, {x, gate, ctx.gradient_of(op.outputs[at::y])}, {},
                            {wants_x ? kNewTensor : kNoTensor, wants_gate ? kNewTensor : kNoTensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::y]).name);
  if (wants_x) ctx.add_gradient(x, out[operand::sigmoid_gate_grad::d_x]);
  if (wants_gate) ctx.add_gradient(gate, out[operand::sigmoid_gate_grad::d_gate]);
}

}  // namespace

const OpRule sigmoid_gate_rule{.kind = OpKind::sigmoid_gate,
                               .infer = infer,
                               .gradient = gradient,
                               .reuse = {{operand::sigmoid_gate::y, operand::sigmoid_gate::x}}};
const OpRule sigmoid_gate_grad_rule{
    .kind = OpKind::sigmoid_gate_grad,
    .infer = infer_grad,
    .reuse = {{operand::sigmoid_gate_grad::d_x, operand::sigmoid_gate_grad::d_y},
              {operand::sigmoid_gate_grad::d_gate, operand::sigmoid_gate_grad::gate}}};

}  // namespace plimsoll
