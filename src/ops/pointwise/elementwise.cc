// add, dropout, gather_rows, scatter_rows.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer_add(const Graph& g, const Op& op) {
  using at = operand::add;
  const Tensor& a = input_tensor(g, op, at::a);
  require(a.shape == input_tensor(g, op, at::b).shape && a.dtype == input_tensor(g, op, at::b).dtype, g, op,
          "add: shapes");
  return {{"", a.shape, a.dtype}};
}

void gradient_add(GradientContext& ctx, const Op& op) {
  using at = operand::add;
  for (const TensorId input : op.inputs)
    if (ctx.wants(input)) ctx.add_gradient(input, ctx.gradient_of(op.outputs[at::y]));
}

// x [T, H], samples [T], positions [T], step -> y like x. The mask is drawn from (seed, step, the scope's
// name, sample in the effective batch, position, feature), so every split, and the backward pass, sees the
// same one.
std::vector<OutputSpec> infer_dropout(const Graph& g, const Op& op) {
  using at = operand::dropout;
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", x.shape, x.dtype}};
}

void gradient_dropout(GradientContext& ctx, const Op& op) {
  using at = operand::dropout;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  const auto out = ctx.emit(OpKind::dropout,
                            {ctx.gradient_of(op.outputs[at::y]), op.inputs[at::samples],
                             op.inputs[at::positions], op.inputs[at::step]},
                            op.attrs, {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::dropout::y]);
}

// x [T, H], rows i32 [G] -> y [G, H]. Where the rows of y are of another axis than those of x, attribute
// `rows_of` is the axis of x. With `repeats` a row may be named several times (sequences that are the same).
std::vector<OutputSpec> infer_gather(const Graph& g, const Op& op) {
  using at = operand::gather_rows;
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", {input_tensor(g, op, at::rows).shape[0], x.shape[1]}, x.dtype}};
}

void gradient_gather(GradientContext& ctx, const Op& op) {
  using at = operand::gather_rows;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  Attrs attrs = op.attrs;
  attrs["rows"] = ctx.graph().tensor(x).shape[0];
  const auto out =
      ctx.emit(OpKind::scatter_rows, {ctx.gradient_of(op.outputs[at::y]), op.inputs[at::rows], ctx.step()},
               std::move(attrs), {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::scatter_rows::x]);
}

// y [G, H], rows i32 [G], step -> x [T, H]: each live row of y goes to the row that it names, which no other
// one does, or with `repeats` is added to it, in order; all else is 0.
std::vector<OutputSpec> infer_scatter(const Graph& g, const Op& op) {
  using at = operand::scatter_rows;
  const Tensor& y = input_tensor(g, op, at::y);
  require(input_tensor(g, op, at::rows).shape[0] == y.shape[0], g, op, "scatter_rows: a number for each row");
  return {{"", {op.attr_int("rows"), y.shape[1]}, y.dtype}};
}

// On a GPU: all is cleared, then rows are written.
int64_t launches_scatter(const Graph&, const Op&, bool) { return 2; }

}  // namespace

const OpRule add_rule{.kind = OpKind::add,
                      .infer = infer_add,
                      .gradient = gradient_add,
                      .reuse = {{operand::add::y, operand::add::a}, {operand::add::y, operand::add::b}},
                      .recompute = RecomputeClass::sum};
const OpRule dropout_rule{.kind = OpKind::dropout,
                          .infer = infer_dropout,
                          .gradient = gradient_dropout,
                          .reuse = {{operand::dropout::y, operand::dropout::x}}};
const OpRule gather_rows_rule{.kind = OpKind::gather_rows,
                              .infer = infer_gather,
                              .gradient = gradient_gather,
                              .other_axis = {.attribute = "rows_of", .inputs = {operand::gather_rows::x}}};
const OpRule scatter_rows_rule{.kind = OpKind::scatter_rows,
                               .infer = infer_scatter,
                               .other_axis = {.attribute = "rows_of", .outputs = {operand::scatter_rows::x}},
                               .launches = launches_scatter};

}  // namespace plimsoll
