// halve: x / 2. Its gradient is itself.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  return {{"", x.shape, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::halve, {ctx.gradient_of(op.outputs[0])}, {}, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[0]);
}

}  // namespace

const OpRule halve_rule{.kind = OpKind::halve, .infer = infer, .gradient = gradient, .reuse = {{0, 0}}};

}  // namespace plimsoll
