// split_columns: x [T, G * (A + B + C)] -> a [T, G * A], b [T, G * B], c [T, G * C]: of each of G groups of columns, such
// as heads, the first A, the next B and the rest, which may be none. Attributes `groups`, `a_width` and `b_width`.
// join_columns puts them together again. Each is the other's gradient.
#include <algorithm>

#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

int64_t groups_of(const Op& op) { return op.attr_int("groups"); }

std::vector<OutputSpec> infer_split(const Graph& g, const Op& op) {
  using at = operand::split_columns;
  const Tensor& x = input_tensor(g, op, at::x);
  const int64_t groups = groups_of(op), a = op.attr_int("a_width"), b = op.attr_int("b_width");
  require(x.shape.rank() == 2 && groups > 0 && a > 0 && b > 0 && x.shape[1] % groups == 0, g, op,
          "split_columns: widths");
  const int64_t c = x.shape[1] / groups - a - b, rows = x.shape[0];
  require(op.has_output(at::c) ? c > 0 : c == 0, g, op, "split_columns: the rest of the columns");
  return {{".a", {rows, groups * a}, x.dtype},
          {".b", {rows, groups * b}, x.dtype},
          {".c", {rows, groups * std::max<int64_t>(c, 1)}, x.dtype}};
}

std::vector<OutputSpec> infer_join(const Graph& g, const Op& op) {
  using at = operand::join_columns;
  const Tensor& a = input_tensor(g, op, at::a);
  int64_t width = 0;
  for (const size_t input : {size_t{at::a}, size_t{at::b}, size_t{at::c}}) {
    if (!op.has_input(input)) continue;
    const Tensor& part = input_tensor(g, op, input);
    require(part.shape.rank() == 2 && part.shape[0] == a.shape[0] && part.dtype == a.dtype &&
                part.shape[1] % groups_of(op) == 0,
            g, op, "join_columns: shapes");
    width += part.shape[1];
  }
  return {{"", {a.shape[0], width}, a.dtype}};
}

Attrs widths(const Graph& g, const Op& op, TensorId a, TensorId b) {
  const int64_t groups = groups_of(op);
  return {{"groups", groups},
          {"a_width", g.tensor(a).shape[1] / groups},
          {"b_width", g.tensor(b).shape[1] / groups}};
}

void gradient_split(GradientContext& ctx, const Op& op) {
  using at = operand::split_columns;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  Operands parts;
  for (const TensorId part : op.outputs)
    parts.push_back(part == kNoTensor ? kNoTensor : ctx.gradient_of(part));
  const auto out = ctx.emit(OpKind::join_columns, std::move(parts), {{"groups", groups_of(op)}}, {kNewTensor},
                            "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::join_columns::x]);
}

void gradient_join(GradientContext& ctx, const Op& op) {
  using at = operand::join_columns;
  if (std::none_of(op.inputs.begin(), op.inputs.end(), [&](TensorId part) { return ctx.wants(part); }))
    return;
  const bool three = op.has_input(at::c);
  const auto out = ctx.emit(OpKind::split_columns, {ctx.gradient_of(op.outputs[at::x])},
                            widths(ctx.graph(), op, op.inputs[at::a], op.inputs[at::b]),
                            {kNewTensor, kNewTensor, three ? kNewTensor : kNoTensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::x]).name);
  for (size_t part = 0; part < op.inputs.size(); ++part)
    if (ctx.wants(op.inputs[part])) ctx.add_gradient(op.inputs[part], out[part]);
}

// On a GPU: a kernel for each part.
int64_t launches(const Graph&, const Op& op, bool) {
  const bool splits = op.kind == OpKind::split_columns;
  return (splits ? op.has_output(operand::split_columns::c) : op.has_input(operand::join_columns::c)) ? 3 : 2;
}

}  // namespace

const OpRule split_columns_rule{
    .kind = OpKind::split_columns, .infer = infer_split, .gradient = gradient_split, .launches = launches};
const OpRule join_columns_rule{
    .kind = OpKind::join_columns, .infer = infer_join, .gradient = gradient_join, .launches = launches};

}  // namespace plimsoll
