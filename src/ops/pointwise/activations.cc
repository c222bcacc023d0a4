// relu, geglu, gelu: what an MLP has between its products; tanh, as poolers have it; scale.
// geglu: s = gelu(gate) * up with gelu's tanh form, which T5 calls gelu_new, or with attribute `approximate` "none"
// that by the normal distribution; without `up` both are halves of gate (ops/pointwise/halves.h). gelu: x * Phi(x), Phi the normal
// distribution, or with attribute `approximate` "tanh" that form, in PyTorch's words. The gradients of relu
// and tanh read what those made, so that they may be in place.
#include "graph/op_kind.h"
#include "ops/pointwise/halves.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer_like_first(const Graph& g, const Op& op) {
  const Tensor& x = g.tensor(op.inputs.front());
  for (const TensorId other : op.inputs)
    require(g.tensor(other).shape == x.shape, g, op, "operands of different shapes");
  return {{"", x.shape, x.dtype}};
}

// s, d_s -> d_x
template <OpKind Gradient>
void gradient_by_output(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs.front(), s = op.outputs.front();
  if (!ctx.wants(x)) return;
  const auto out =
      ctx.emit(Gradient, {s, ctx.gradient_of(s)}, {}, {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out.front());
}

// x, d_s -> d_x
void gradient_gelu(GradientContext& ctx, const Op& op) {
  using at = operand::gelu;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::gelu_grad, {x, ctx.gradient_of(op.outputs[at::s])}, op.attrs,
                            {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::gelu_grad::d_x]);
}

std::vector<OutputSpec> infer_geglu(const Graph& g, const Op& op) {
  using at = operand::geglu;
  return {{"", gated_shape<at>(g, op), input_tensor(g, op, at::gate).dtype}};
}

// gate, up?, d_s -> d_gate, d_up?
std::vector<OutputSpec> infer_geglu_grad(const Graph& g, const Op& op) {
  return gated_gradients<operand::geglu_grad>(g, op);
}

void gradient_geglu(GradientContext& ctx, const Op& op) {
  give_gated<operand::geglu>(ctx, op, OpKind::geglu_grad);
}

void gradient_scale(GradientContext& ctx, const Op& op) {
  using at = operand::scale;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::scale, {ctx.gradient_of(op.outputs[at::y])}, op.attrs, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::scale::y]);
}

}  // namespace

const OpRule relu_rule{.kind = OpKind::relu,
                       .infer = infer_like_first,
                       .gradient = gradient_by_output<OpKind::relu_grad>,
                       .reuse = {{operand::relu::s, operand::relu::x}},
                       .recompute = RecomputeClass::gate};
const OpRule relu_grad_rule{.kind = OpKind::relu_grad,
                            .infer = infer_like_first,
                            .reuse = {{operand::relu_grad::d_x, operand::relu_grad::s},
                                      {operand::relu_grad::d_x, operand::relu_grad::d_s}}};
const OpRule geglu_rule{
    .kind = OpKind::geglu,
    .infer = infer_geglu,
    .gradient = gradient_geglu,
    .reuse = {{operand::geglu::s, operand::geglu::gate}, {operand::geglu::s, operand::geglu::up}},
    .recompute = RecomputeClass::gate};
const OpRule geglu_grad_rule{.kind = OpKind::geglu_grad,
                             .infer = infer_geglu_grad,
                             .reuse = {{operand::geglu_grad::d_gate, operand::geglu_grad::gate},
                                       {operand::geglu_grad::d_up, operand::geglu_grad::up}}};
const OpRule gelu_rule{.kind = OpKind::gelu,
                       .infer = infer_like_first,
                       .gradient = gradient_gelu,
                       .reuse = {{operand::gelu::s, operand::gelu::x}},
                       .recompute = RecomputeClass::gate};
const OpRule gelu_grad_rule{.kind = OpKind::gelu_grad,
                            .infer = infer_like_first,
                            .reuse = {{operand::gelu_grad::d_x, operand::gelu_grad::x},
                                      {operand::gelu_grad::d_x, operand::gelu_grad::d_s}}};
const OpRule tanh_rule{.kind = OpKind::tanh,
                       .infer = infer_like_first,
                       .gradient = gradient_by_output<OpKind::tanh_grad>,
                       .reuse = {{operand::tanh::y, operand::tanh::x}}};
const OpRule tanh_grad_rule{.kind = OpKind::tanh_grad,
                            .infer = infer_like_first,
                            .reuse = {{operand::tanh_grad::d_x, operand::tanh_grad::y},
                                      {operand::tanh_grad::d_x, operand::tanh_grad::d_y}}};
const OpRule scale_rule{.kind = OpKind::scale,
                        .infer = infer_like_first,
                        .gradient = gradient_scale,
                        .reuse = {{operand::scale::y, operand::scale::x}}};

}  // namespace plimsoll
