// swiglu: s = silu(gate) * up. The gradient may overwrite gate and up, which no op reads after it. Without `up`, gate
// [T, 2M] holds both side by side, as a fused matrix makes them, and so does the gradient.
#include "graph/op_kind.h"
#include "ops/pointwise/halves.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::swiglu;
  return {{"", gated_shape<at>(g, op), input_tensor(g, op, at::gate).dtype}};
}

// gate, up, d_s -> d_gate, d_up
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::swiglu_grad;
  return gated_gradients<at>(g, op);
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::swiglu;
  give_gated<at>(ctx, op, OpKind::swiglu_grad);
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
