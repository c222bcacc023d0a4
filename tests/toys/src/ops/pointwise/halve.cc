// halve: x / 2. Its gradient is itself.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, operand::halve::x);
  return {{"", x.shape, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[operand::halve::x];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::halve, {ctx.gradient_of(op.outputs[operand::halve::y])}, {}, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::halve::y]);
}

}  // namespace

const OpRule halve_rule{.kind = OpKind::halve,
                        .infer = infer,
                        .gradient = gradient,
                        .reuse = {{operand::halve::y, operand::halve::x}}};

}  // namespace plimsoll
