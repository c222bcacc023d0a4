// embedding: row ids[t] of the table; rows beyond the live tokens are zero, so that padding adds nothing
// anywhere. embedding_dw: the scatter of d_h into the table's gradient (the whole gradient is cleared first
// when it is written for the first time in a step). Tokens that are `padding_row` are not scattered: torch's
// padding_idx.
#include "graph/op_kind.h"
#include "ops/pointwise/padding_row.h"
#include "ops/rules.h"
#include "ops/step_values.h"

namespace plimsoll {
namespace {

// ids [T], weight [V, H], step
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::embedding;
  const Tensor& ids = input_tensor(g, op, at::ids);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(ids.dtype == DType::i32 && ids.shape.rank() == 1 && weight.shape.rank() == 2, g, op,
          "embedding: shapes");
  return {{"", {ids.shape[0], weight.shape[1]}, weight.dtype}};
}

// ids [T], d_h [T, H], step -> gradient [V, H]
std::vector<OutputSpec> infer_dw(const Graph& g, const Op& op) {
  using at = operand::embedding_dw;
  const Tensor& d_h = input_tensor(g, op, at::d_h);
  return {{".grad", {op.attr_int("vocab"), d_h.shape.last()}, gradient_dtype(g, op, at::d_weight)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::embedding;
  const TensorId weight = op.inputs[at::weight];
  if (!ctx.wants(weight)) return;
  const auto target = ctx.weight_gradient(weight);
  Attrs attrs{{"accumulate", target.accumulate}, {"vocab", ctx.graph().tensor(weight).shape[0]}};
  if (op.attrs.contains(kPaddingRow)) attrs.emplace(std::string(kPaddingRow), padding_row(op));
  ctx.emit(OpKind::embedding_dw, {op.inputs[at::ids], ctx.gradient_of(op.outputs[at::h]), ctx.step()}, attrs,
           {target.tensor}, "");
}

Cost cost(const Graph& g, const Op& op) {
  using at = operand::embedding;
  return {0, 2.0 * static_cast<double>(g.tensor(op.outputs[at::h]).bytes())};
}

Cost cost_dw(const Graph& g, const Op& op) {
  using at = operand::embedding_dw;
  const double cleared = op.attr_int("accumulate") != kAlwaysAdds
                             ? static_cast<double>(g.tensor(op.outputs[at::d_weight]).bytes())
                             : 0.0;
  return {0, cleared + 3.0 * static_cast<double>(input_tensor(g, op, at::d_h).bytes())};
}

// On a GPU: the gradient is cleared, then added to.
int64_t launches_dw(const Graph&, const Op&, bool) { return 2; }

}  // namespace

const OpRule embedding_rule{.kind = OpKind::embedding, .infer = infer, .gradient = gradient, .cost = cost};
const OpRule embedding_dw_rule{.kind = OpKind::embedding_dw,
                               .infer = infer_dw,
                               .cost = cost_dw,
                               .launches = launches_dw,
                               .updates = true};

}  // namespace plimsoll
