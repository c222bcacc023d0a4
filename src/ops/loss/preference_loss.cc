// preference_loss: what one answer of a pair should be more likely than the other by, of the
// log-probabilities that linear_log_prob gives. Rows are few: it is computed in f64, in the order of the
// pairs. Added to the loss between the answers is `nll` times the mean negative log-likelihood of the chosen
// one. Gradients carry loss_scale; rows that are not live have none.
#include "ops/loss/preference_loss.h"

#include "graph/op_kind.h"
#include "ops/loss/linear_log_prob.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// logps f32 [B, 2], tokens f32 [B, 2], reference f32 [B, n]? (log-probabilities of answers in its first
// column), step -> sums f64 [10]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::preference_loss;
  const Shape& logps = input_tensor(g, op, at::logps).shape;
  require(logps[0] % 2 == 0 && logps[1] == kNumLogProbs && input_tensor(g, op, at::tokens).shape == logps, g,
          op, "preference_loss: shapes");
  require(!op.has_input(at::reference) || input_tensor(g, op, at::reference).shape[0] == logps[0], g, op,
          "preference_loss: a reference for each sequence");
  return {{"", {kNumPreferenceSums}, DType::f64}};
}

std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::preference_loss;
  std::vector<OutputSpec> outputs = infer(g, op);
  outputs.push_back({"", input_tensor(g, op, at::logps).shape, DType::f32});
  return outputs;
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::preference_loss;
  const TensorId logps = op.inputs[at::logps];
  const auto out = ctx.emit(OpKind::preference_loss_grad, op.inputs, op.attrs,
                            {op.outputs[at::sums], kNewTensor}, "d_" + ctx.graph().tensor(logps).name);
  ctx.set_gradient(logps, out[operand::preference_loss_grad::d_logps]);
}

}  // namespace

const OpRule preference_loss_rule{
    .kind = OpKind::preference_loss, .infer = infer, .gradient = gradient, .gradient_replaces = true};
const OpRule preference_loss_grad_rule{
    .kind = OpKind::preference_loss_grad, .infer = infer_grad, .updates = true};

}  // namespace plimsoll
