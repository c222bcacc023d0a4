// linear_log_prob: the output head, and what it says of the tokens that follow: their log-probabilities,
// summed over each sequence, those of its answer and of its prompt apart (ops/loss/linear_log_prob.h). Like
// linear_cross_entropy it takes the rows that carry a label in chunks, so that whole logits never exist.
// What a loss makes of the sums is known when the last one is: the gradient computes the logits once more.
#include "ops/loss/linear_log_prob.h"

#include "graph/op_kind.h"
#include "ops/loss/linear_cross_entropy_layout.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], weight [V, H], labels i32 [T], seq_starts i32 [B+1] -> sums of log-probabilities f32 [B, 2], and
// numbers of tokens in them f32 [B, 2]; an adapter's t [T, r] and b [V, r] may follow. Where sequences are an
// axis of their own, attribute `rows_of` is the axis of x. Where they share prefixes, label_rows and
// label_sequences i32 [T] say which row each label asks and whose it is, of `sequences` that there may be.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::linear_log_prob;
  const Tensor& x = input_tensor(g, op, at::x);
  require_head(g, op);
  require(input_tensor(g, op, at::labels).shape[0] == x.shape[0], g, op,
          "linear_log_prob: a label for each row");
  const Shape sums = {log_prob_sequences(g, op), kNumLogProbs};
  return {{"", sums, DType::f32}, {".tokens", sums, DType::f32}};
}

// x, weight, labels, seq_starts, d_logps f32 [B, 2], step, t?, b?, label_rows?, label_sequences? -> d_x [T,
// H]?, gradient [V, H]?; with an adapter d_t [T, r]?, gradient [V, r]?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) { return head_gradients(g, op); }

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::linear_log_prob;
  const TensorId x = op.inputs[at::x], t = op.input(head_operands(op).t);
  auto [attrs, outputs] = begin_head_gradient(ctx, op, {});
  Operands inputs = {x,
                     op.inputs[at::weight],
                     op.inputs[at::labels],
                     op.inputs[at::seq_starts],
                     ctx.gradient_of(op.outputs[at::logps]),
                     ctx.step()};
  for (size_t i = head_operands(op).t; i < op.inputs.size(); ++i) inputs.push_back(op.inputs[i]);
  const auto out = ctx.emit(OpKind::linear_log_prob_grad, std::move(inputs), std::move(attrs),
                            std::move(outputs), "d_" + ctx.graph().tensor(x).name);
  if (ctx.wants(x)) ctx.add_gradient(x, out[operand::linear_log_prob_grad::d_x]);
  if (ctx.wants(t)) ctx.add_gradient(t, out[operand::linear_log_prob_grad::d_t]);
}

}  // namespace

const OpRule linear_log_prob_rule{
    .kind = OpKind::linear_log_prob,
    .infer = infer,
    .gradient = gradient,
    .cost = head_cost,
    .work = head_work,
    .scratch_bytes = head_scratch,
    .gpu_scratch_bytes = head_gpu_scratch,
    .other_axis = {.attribute = "rows_of",
                   .inputs = {operand::linear_log_prob::x, operand::linear_log_prob::weight,
                              operand::linear_log_prob::t, operand::linear_log_prob::b}},
    .launches = head_launches,
    .shortens = Shortens::targets,
    .recompute = RecomputeClass::product,
    .chunked = true};
const OpRule linear_log_prob_grad_rule{
    .kind = OpKind::linear_log_prob_grad,
    .infer = infer_grad,
    .cost = head_cost,
    .work = head_work,
    .scratch_bytes = head_scratch,
    .gpu_scratch_bytes = head_gpu_scratch,
    .other_axis = {.attribute = "rows_of",
                   .inputs = {operand::linear_log_prob_grad::x, operand::linear_log_prob_grad::weight,
                              operand::linear_log_prob_grad::t, operand::linear_log_prob_grad::b},
                   .outputs = {operand::linear_log_prob_grad::d_x, operand::linear_log_prob_grad::d_t}},
    .launches = head_launches,
    .updates = true,
    .shortens = Shortens::targets,
    .chunked = true};

}  // namespace plimsoll
