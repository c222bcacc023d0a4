// rope_table: cos and sin of position * inv_freq for every token, once per micro-step, shared by all layers.
// The frequencies are an input, since the "dynamic" scaling depends on the longest sequence of the batch; the
// last value is the attention factor (yarn), by which cos and sin are multiplied. rope: rotation of pairs (i,
// i + D/2) of each head; the gradient is the rotation back. A table [T, R] that is narrower than a head, whose width is
// then attribute `head_dim`, turns the first R values and leaves the others as they are. With `position_beta` the
// table is that of queries that are also multiplied by 1 + beta ln(1 + floor(position / original_length)), as in
// Ministral 3.
#include "graph/op_kind.h"
#include "ops/pointwise/rope_args.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// positions [T], seq_starts [B+1], inv_freq f32 [B, D/2 + 1], step -> table f32 [T, D]: D/2 cosines, D/2
// sines
std::vector<OutputSpec> infer_table(const Graph& g, const Op& op) {
  using at = operand::rope_table;
  const int64_t half = input_tensor(g, op, at::inv_freq).shape[1] - 1;
  require(op.attrs.contains("position_beta") == op.attrs.contains("original_length"), g, op,
          "rope_table: position_beta and original_length belong together");
  return {{"", {input_tensor(g, op, at::positions).shape[0], 2 * half}, DType::f32}};
}

// x [T, N*D], table [T, D], or [T, R] with head_dim -> y like x
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::rope;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& table = input_tensor(g, op, at::table);
  const int64_t head = rope_head_dim(op, table.shape[1]);
  require(x.shape[0] == table.shape[0] && x.shape[1] % head == 0 && table.shape[1] <= head, g, op,
          "rope: shapes");
  return {{"", x.shape, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::rope;
  const TensorId x = op.inputs[at::x];
  if (!ctx.wants(x)) return;
  Attrs attrs = op.attrs;
  attrs["inverse"] = int64_t{1} - op.attr_int("inverse");
  const auto out = ctx.emit(OpKind::rope, {ctx.gradient_of(op.outputs[at::y]), op.inputs[at::table]},
                            std::move(attrs), {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.add_gradient(x, out[operand::rope::y]);
}

}  // namespace

const OpRule rope_table_rule{.kind = OpKind::rope_table, .infer = infer_table};
const OpRule rope_rule{.kind = OpKind::rope,
                       .infer = infer,
                       .gradient = gradient,
                       .reuse = {{operand::rope::y, operand::rope::x}}};

}  // namespace plimsoll
