// linear_cross_entropy: the output head and the loss in one op. Rows that carry a target are taken in chunks;
// a chunk's logits exist in scratch only, so whole logits never do. With gradients
// (linear_cross_entropy_grad) each chunk is visited once: logits, statistics, d_logits in place, d_x, the
// weight's gradient; nothing is saved or recomputed. Adds to metric `loss` f64 [2]: sum of losses over target
// tokens, and their count. Gradients carry loss_scale.
#include "graph/op_kind.h"
#include "ops/linear_cross_entropy_layout.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], weight [V, H], labels [T], step -> loss f64 [2]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  require(input_tensor(g, op, 0).shape[1] == input_tensor(g, op, 1).shape[1], g, op,
          "linear_cross_entropy: shapes");
  require(input_tensor(g, op, 0).dtype == input_tensor(g, op, 1).dtype, g, op,
          "linear_cross_entropy: x and weight differ in type");
  return {{"", {2}, DType::f64}};
}

// the same -> loss, d_x [T, H]?, gradient [V, H]?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  return {{"", {2}, DType::f64},
          {"", x.shape, x.dtype},
          {".grad", input_tensor(g, op, 1).shape, gradient_dtype(g, op, 2)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  TensorId weight_gradient = kNoTensor;
  Attrs attrs = op.attrs;
  attrs["accumulate"] = int64_t{0};
  if (ctx.wants(op.inputs[1])) {
    const auto target = ctx.weight_gradient(op.inputs[1]);
    weight_gradient = target.tensor;
    attrs["accumulate"] = target.accumulate;
  }
  const auto out = ctx.emit(OpKind::linear_cross_entropy_grad, op.inputs, attrs,
                            {op.outputs[0], ctx.wants(x) ? kNewTensor : kNoTensor, weight_gradient},
                            "d_" + ctx.graph().tensor(x).name);
  if (ctx.wants(x)) ctx.set_gradient(x, out[1]);
}

}  // namespace

const OpRule linear_cross_entropy_rule{.kind = OpKind::linear_cross_entropy,
                                       .infer = infer,
                                       .gradient = gradient,
                                       .cost = head_cost,
                                       .work = head_work,
                                       .scratch_bytes = head_scratch,
                                       .chunked = true,
                                       .gradient_replaces = true};
const OpRule linear_cross_entropy_grad_rule{.kind = OpKind::linear_cross_entropy_grad,
                                            .infer = infer_grad,
                                            .cost = head_cost,
                                            .work = head_work,
                                            .scratch_bytes = head_scratch,
                                            .updates = true,
                                            .chunked = true};

}  // namespace plimsoll
