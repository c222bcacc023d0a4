// pair_loss, class_loss: losses over the scores of whole sequences. Rows are few and narrow: both are
// computed in f64, in the order of the rows. Gradients carry loss_scale; rows that are not live have none.
//
// pair_loss is that of reward models (Bradley-Terry): -log sigmoid(chosen - rejected - margin), and with
// `centering` c the term c (chosen + rejected)^2 that keeps rewards around 0 (Eisenstein et al., 2023).
#include "ops/loss/sequence_loss.h"

#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// scores [B, 1], margins f32 [B, 1] (that of a pair in its first row), step -> sums f64 [7]
std::vector<OutputSpec> infer_pairs(const Graph& g, const Op& op) {
  using at = operand::pair_loss;
  const Tensor& scores = input_tensor(g, op, at::scores);
  require(scores.shape[1] == 1 && scores.shape[0] % 2 == 0, g, op, "pair_loss: shapes");
  require(input_tensor(g, op, at::margins).shape == scores.shape, g, op, "pair_loss: a margin for each row");
  return {{"", {kNumPairSums}, DType::f64}};
}

// scores [B, C], targets f32 [B, 1 or C], step -> sums f64 [3]
std::vector<OutputSpec> infer_classes(const Graph& g, const Op& op) {
  using at = operand::class_loss;
  const Tensor& scores = input_tensor(g, op, at::scores);
  const Shape& targets = input_tensor(g, op, at::targets).shape;
  const bool one = op.attr_int("problem") == static_cast<int64_t>(ClassProblem::one_of);
  require(targets[0] == scores.shape[0] && targets[1] == (one ? 1 : scores.shape[1]), g, op,
          "class_loss: shapes");
  return {{"", {kNumClassSums}, DType::f64}};
}

std::vector<OutputSpec> with_gradient(std::vector<OutputSpec> outputs, const Tensor& scores) {
  outputs.push_back({"", scores.shape, scores.dtype});
  return outputs;
}
std::vector<OutputSpec> infer_pairs_grad(const Graph& g, const Op& op) {
  using at = operand::pair_loss;
  return with_gradient(infer_pairs(g, op), input_tensor(g, op, at::scores));
}
std::vector<OutputSpec> infer_classes_grad(const Graph& g, const Op& op) {
  using at = operand::class_loss;
  return with_gradient(infer_classes(g, op), input_tensor(g, op, at::scores));
}

template <OpKind kind>
void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::pair_loss;
  const TensorId scores = op.inputs[at::scores];
  const auto out = ctx.emit(kind, op.inputs, op.attrs, {op.outputs[at::sums], kNewTensor},
                            "d_" + ctx.graph().tensor(scores).name);
  ctx.set_gradient(scores, out[operand::pair_loss_grad::d_scores]);
}

}  // namespace

const OpRule pair_loss_rule{.kind = OpKind::pair_loss,
                            .infer = infer_pairs,
                            .gradient = gradient<OpKind::pair_loss_grad>,
                            .gradient_replaces = true};
const OpRule pair_loss_grad_rule{.kind = OpKind::pair_loss_grad, .infer = infer_pairs_grad, .updates = true};
const OpRule class_loss_rule{.kind = OpKind::class_loss,
                             .infer = infer_classes,
                             .gradient = gradient<OpKind::class_loss_grad>,
                             .gradient_replaces = true};
const OpRule class_loss_grad_rule{
    .kind = OpKind::class_loss_grad, .infer = infer_classes_grad, .updates = true};

}  // namespace plimsoll
