// add, dropout, gather_rows, scatter_rows.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

std::vector<OutputSpec> infer_add(const Graph& g, const Op& op) {
  const Tensor& a = input_tensor(g, op, 0);
  require(a.shape == input_tensor(g, op, 1).shape && a.dtype == input_tensor(g, op, 1).dtype, g, op,
          "add: shapes");
  return {{"", a.shape, a.dtype}};
}

void gradient_add(GradientContext& ctx, const Op& op) {
  for (const TensorId input : op.inputs)
    if (ctx.wants(input)) ctx.add_gradient(input, ctx.gradient_of(op.outputs[0]));
}

// x [T, H], samples [T], positions [T], step -> y like x. The mask is drawn from (seed, step, the scope's
// name, sample in the effective batch, position, feature), so every split, and the backward pass, sees the
// same one.
std::vector<OutputSpec> infer_dropout(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  return {{"", x.shape, x.dtype}};
}

void gradient_dropout(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  if (!ctx.wants(x)) return;
  const auto out =
      ctx.emit(OpKind::dropout, {ctx.gradient_of(op.outputs[0]), op.inputs[1], op.inputs[2], op.inputs[3]},
               op.attrs, {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[0]);
}

// x [T, H], rows i32 [G] -> y [G, H]. Where the rows of y are of another axis than those of x, attribute
// `rows_of` is the axis of x. With `repeats` a row may be named several times (sequences that are the same).
std::vector<OutputSpec> infer_gather(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  return {{"", {input_tensor(g, op, 1).shape[0], x.shape[1]}, x.dtype}};
}

void gradient_gather(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  if (!ctx.wants(x)) return;
  Attrs attrs = op.attrs;
  attrs["rows"] = ctx.graph().tensor(x).shape[0];
  const auto out = ctx.emit(OpKind::scatter_rows, {ctx.gradient_of(op.outputs[0]), op.inputs[1], ctx.step()},
                            std::move(attrs), {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[0]);
}

// y [G, H], rows i32 [G], step -> x [T, H]: each live row of y goes to the row that it names, which no other
// one does, or with `repeats` is added to it, in order; all else is 0.
std::vector<OutputSpec> infer_scatter(const Graph& g, const Op& op) {
  const Tensor& y = input_tensor(g, op, 0);
  require(input_tensor(g, op, 1).shape[0] == y.shape[0], g, op, "scatter_rows: a number for each row");
  return {{"", {op.attr_int("rows"), y.shape[1]}, y.dtype}};
}

}  // namespace

const OpRule add_rule{.kind = OpKind::add,
                      .infer = infer_add,
                      .gradient = gradient_add,
                      .reuse = {{0, 0}, {0, 1}},
                      .recompute = RecomputeClass::sum};
const OpRule dropout_rule{
    .kind = OpKind::dropout, .infer = infer_dropout, .gradient = gradient_dropout, .reuse = {{0, 0}}};
const OpRule gather_rows_rule{
    .kind = OpKind::gather_rows, .infer = infer_gather, .gradient = gradient_gather};
const OpRule scatter_rows_rule{.kind = OpKind::scatter_rows, .infer = infer_scatter};

}  // namespace plimsoll
