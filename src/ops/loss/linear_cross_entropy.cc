// linear_cross_entropy: the output head and the loss in one op. Rows that carry a target are taken in chunks;
// a chunk's logits exist in scratch only, so whole logits never do. With gradients
// (linear_cross_entropy_grad) each chunk is visited once: logits, statistics, d_logits in place, d_x, the
// weight's gradient; nothing is saved or recomputed. Adds to metric `loss` f64 [2]: sum of losses over target
// tokens, and their count. Gradients carry loss_scale. Where rows share prefixes, labels say which row they
// ask and how many rows they count for, and several may ask the same row (a fork).
#include "graph/op_kind.h"
#include "ops/loss/linear_cross_entropy_layout.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], weight [V, H], labels [T], step, t [T, r]?, b [V, r]?, label_rows [T]?, label_weights f32 [T]?, bias [V]? ->
// loss f64 [2]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  require_head(g, op);
  return {{"", {2}, DType::f64}};
}

// the same -> loss, d_x [T, H]?, gradient [V, H]?; with an adapter d_t [T, r]?, gradient [V, r]?; with a bias gradient [V]?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  std::vector<OutputSpec> specs = head_gradients(g, op);
  specs.insert(specs.begin(), {"", {2}, DType::f64});
  return specs;
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::linear_cross_entropy;
  const TensorId x = op.inputs[at::x], t = op.input(head_operands(op).t);
  auto [attrs, outputs] = begin_head_gradient(ctx, op, {op.outputs[at::loss]});
  const auto out = ctx.emit(OpKind::linear_cross_entropy_grad, op.inputs, std::move(attrs),
                            std::move(outputs), "d_" + ctx.graph().tensor(x).name);
  if (ctx.wants(x)) ctx.set_gradient(x, out[operand::linear_cross_entropy_grad::d_x]);
  if (ctx.wants(t)) ctx.set_gradient(t, out[operand::linear_cross_entropy_grad::d_t]);
}

}  // namespace

const OpRule linear_cross_entropy_rule{.kind = OpKind::linear_cross_entropy,
                                       .infer = infer,
                                       .gradient = gradient,
                                       .cost = head_cost,
                                       .work = head_work,
                                       .scratch_bytes = head_scratch,
                                       .gpu_scratch_bytes = head_gpu_scratch,
                                       .launches = head_launches,
                                       .shortens = Shortens::targets,
                                       .chunked = true,
                                       .gradient_replaces = true};
const OpRule linear_cross_entropy_grad_rule{.kind = OpKind::linear_cross_entropy_grad,
                                            .infer = infer_grad,
                                            .cost = head_cost,
                                            .work = head_work,
                                            .scratch_bytes = head_scratch,
                                            .gpu_scratch_bytes = head_gpu_scratch,
                                            .launches = head_launches,
                                            .updates = true,
                                            .shortens = Shortens::targets,
                                            .chunked = true};

}  // namespace plimsoll
