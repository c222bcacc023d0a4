// relu, geglu, gelu: what an MLP has between its products; tanh, as poolers have it; scale.
// geglu: s = gelu(gate) * up with gelu's tanh form, which T5 calls gelu_new. gelu: x * Phi(x), Phi the normal
// distribution, or with attribute `approximate` "tanh" that form, in PyTorch's words. The gradients of relu
// and tanh read what those made, so that they may be in place.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer_like_first(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  for (size_t i = 1; i < op.inputs.size(); ++i)
    require(input_tensor(g, op, i).shape == x.shape, g, op, "operands of different shapes");
  return {{"", x.shape, x.dtype}};
}

// s, d_s -> d_x
template <OpKind Gradient>
void gradient_by_output(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(Gradient, {op.outputs[0], ctx.gradient_of(op.outputs[0])}, {}, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[0]);
}

// x, d_s -> d_x
void gradient_gelu(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::gelu_grad, {x, ctx.gradient_of(op.outputs[0])}, op.attrs, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[0]);
}

// gate, up, d_s -> d_gate, d_up
std::vector<OutputSpec> infer_geglu_grad(const Graph& g, const Op& op) {
  const Tensor& gate = input_tensor(g, op, 0);
  return {{".gate", gate.shape, gate.dtype}, {".up", gate.shape, gate.dtype}};
}

void gradient_geglu(GradientContext& ctx, const Op& op) {
  if (!ctx.wants(op.inputs[0]) && !ctx.wants(op.inputs[1])) return;
  const auto out = ctx.emit(OpKind::geglu_grad, {op.inputs[0], op.inputs[1], ctx.gradient_of(op.outputs[0])},
                            {}, {kNewTensor, kNewTensor}, "d_" + ctx.graph().tensor(op.outputs[0]).name);
  for (size_t i = 0; i < 2; ++i)
    if (ctx.wants(op.inputs[i])) ctx.add_gradient(op.inputs[i], out[i]);
}

void gradient_scale(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::scale, {ctx.gradient_of(op.outputs[0])}, op.attrs, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[0]);
}

}  // namespace

const OpRule relu_rule{.kind = OpKind::relu,
                       .infer = infer_like_first,
                       .gradient = gradient_by_output<OpKind::relu_grad>,
                       .reuse = {{0, 0}},
                       .recompute = RecomputeClass::gate};
const OpRule relu_grad_rule{.kind = OpKind::relu_grad, .infer = infer_like_first, .reuse = {{0, 0}, {0, 1}}};
const OpRule geglu_rule{.kind = OpKind::geglu,
                        .infer = infer_like_first,
                        .gradient = gradient_geglu,
                        .reuse = {{0, 0}, {0, 1}},
                        .recompute = RecomputeClass::gate};
const OpRule geglu_grad_rule{
    .kind = OpKind::geglu_grad, .infer = infer_geglu_grad, .reuse = {{0, 0}, {1, 1}}};
const OpRule gelu_rule{.kind = OpKind::gelu,
                       .infer = infer_like_first,
                       .gradient = gradient_gelu,
                       .reuse = {{0, 0}},
                       .recompute = RecomputeClass::gate};
const OpRule gelu_grad_rule{.kind = OpKind::gelu_grad, .infer = infer_like_first, .reuse = {{0, 0}, {0, 1}}};
const OpRule tanh_rule{.kind = OpKind::tanh,
                       .infer = infer_like_first,
                       .gradient = gradient_by_output<OpKind::tanh_grad>,
                       .reuse = {{0, 0}}};
const OpRule tanh_grad_rule{.kind = OpKind::tanh_grad, .infer = infer_like_first, .reuse = {{0, 0}, {0, 1}}};
const OpRule scale_rule{
    .kind = OpKind::scale, .infer = infer_like_first, .gradient = gradient_scale, .reuse = {{0, 0}}};

}  // namespace plimsoll
