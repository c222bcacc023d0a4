// mean_rows: the mean of the rows of each sequence, as encoders pool them. mean_rows_grad: each row's share of it.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], seq_starts [B+1], step -> y [B, H]: of sequences that are live; 0 elsewhere. The rows of x are of the axis
// that attribute `rows_of` names.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::mean_rows;
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", {input_tensor(g, op, at::seq_starts).shape[0] - 1, x.shape[1]}, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::mean_rows;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  Attrs attrs = op.attrs;
  attrs["rows"] = ctx.graph().tensor(x).shape[0];
  const auto out = ctx.emit(OpKind::mean_rows_grad,
                            {ctx.gradient_of(op.outputs[at::y]), op.inputs[at::seq_starts], ctx.step()},
                            std::move(attrs), {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::mean_rows_grad::d_x]);
}

// d_y [B, H], seq_starts [B+1], step -> d_x [T, H]; 0 in rows of no sequence
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::mean_rows_grad;
  const Tensor& d_y = input_tensor(g, op, at::d_y);
  require(input_tensor(g, op, at::seq_starts).shape[0] == d_y.shape[0] + 1, g, op,
          "mean_rows_grad: a row for each sequence");
  return {{"", {op.attr_int("rows"), d_y.shape[1]}, d_y.dtype}};
}

}  // namespace

const OpRule mean_rows_rule{.kind = OpKind::mean_rows,
                            .infer = infer,
                            .gradient = gradient,
                            .other_axis = {.attribute = "rows_of", .inputs = {operand::mean_rows::x}}};
const OpRule mean_rows_grad_rule{
    .kind = OpKind::mean_rows_grad,
    .infer = infer_grad,
    .other_axis = {.attribute = "rows_of", .outputs = {operand::mean_rows_grad::d_x}}};

}  // namespace plimsoll
