// linear_log_prob: the output head, and what it says of the tokens that follow: their log-probabilities,
// summed over each sequence, those of its answer and of its prompt apart (ops/linear_log_prob.h). Like
// linear_cross_entropy it takes the rows that carry a label in chunks, so that whole logits never exist.
// What a loss makes of the sums is known when the last one is: the gradient computes the logits once more.
#include "ops/linear_log_prob.h"

#include "graph/op_kind.h"
#include "ops/linear_cross_entropy_layout.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], weight [V, H], labels i32 [T], seq_starts i32 [B+1] -> sums of log-probabilities f32 [B, 2], and
// numbers of tokens in them f32 [B, 2]. Where sequences are an axis of their own, attribute `rows_of` is the
// axis of x.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const Tensor& weight = input_tensor(g, op, 1);
  require(x.shape[1] == weight.shape[1] && x.dtype == weight.dtype, g, op, "linear_log_prob: shapes");
  require(input_tensor(g, op, 2).shape[0] == x.shape[0], g, op, "linear_log_prob: a label for each row");
  const Shape sums = {input_tensor(g, op, 3).shape[0] - 1, kNumLogProbs};
  return {{"", sums, DType::f32}, {".tokens", sums, DType::f32}};
}

// the same, d_logps f32 [B, 2], step -> d_x [T, H]?, gradient [V, H]?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  return {{"", x.shape, x.dtype}, {".grad", input_tensor(g, op, 1).shape, gradient_dtype(g, op, 1)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  Attrs attrs = op.attrs;
  attrs["accumulate"] = int64_t{0};
  TensorId weight_gradient = kNoTensor;
  if (ctx.wants(op.inputs[1])) {
    const auto target = ctx.weight_gradient(op.inputs[1]);
    weight_gradient = target.tensor;
    attrs["accumulate"] = target.accumulate;
  }
  Operands inputs = op.inputs;
  inputs.push_back(ctx.gradient_of(op.outputs[0]));
  inputs.push_back(ctx.step());
  const auto out =
      ctx.emit(OpKind::linear_log_prob_grad, std::move(inputs), std::move(attrs),
               {ctx.wants(x) ? kNewTensor : kNoTensor, weight_gradient}, "d_" + ctx.graph().tensor(x).name);
  if (ctx.wants(x)) ctx.add_gradient(x, out[0]);
}

}  // namespace

const OpRule linear_log_prob_rule{.kind = OpKind::linear_log_prob,
                                  .infer = infer,
                                  .gradient = gradient,
                                  .cost = head_cost,
                                  .work = head_work,
                                  .scratch_bytes = head_scratch,
                                  .recompute = RecomputeClass::product,
                                  .chunked = true};
const OpRule linear_log_prob_grad_rule{.kind = OpKind::linear_log_prob_grad,
                                       .infer = infer_grad,
                                       .cost = head_cost,
                                       .work = head_work,
                                       .scratch_bytes = head_scratch,
                                       .chunked = true};

}  // namespace plimsoll
