// layer_norm: y = (x - mean) / sqrt(variance + eps) * weight + bias over each row; the bias may be absent. Computed in f32 and
// rounded once, as PyTorch does.
#include "graph/op_kind.h"
#include "ops/norm/layer_norm_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], weight [H], bias [H]? -> y like x, mean and 1 / deviation of each row f32 [T, 2]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::layer_norm;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(x.shape.rank() == 2 && weight.shape == Shape{x.shape[1]}, g, op, "layer_norm: shapes");
  if (op.has_input(at::bias)) {
    const Tensor& bias = input_tensor(g, op, at::bias);
    require(bias.shape == weight.shape && bias.dtype == weight.dtype, g, op, "layer_norm: weight and bias");
  }
  return {{"", x.shape, x.dtype}, {".stats", {x.shape[0], 2}, DType::f32}};
}

// x, weight, stats, d_y, d_x_in?, step -> d_x (= d_x_in + ...), gradient of weight?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::layer_norm_grad;
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", x.shape, x.dtype},
          {".weight_grad", input_tensor(g, op, at::weight).shape, gradient_dtype(g, op, at::d_weight)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::layer_norm;
  const TensorId x = op.inputs[at::x], weight = op.inputs[at::weight], bias = op.input(at::bias);
  const TensorId d_y = ctx.gradient_of(op.outputs[at::y]);
  if (ctx.wants(bias)) {
    const auto target = ctx.weight_gradient(bias);
    ctx.emit(OpKind::bias_grad, {d_y, ctx.step()}, {{"accumulate", target.accumulate}}, {target.tensor}, "");
  }
  const bool wants_x = ctx.wants(x);
  if (!wants_x && !ctx.wants(weight)) return;
  TensorId weight_gradient = kNoTensor;
  int64_t accumulate = 0;
  if (ctx.wants(weight)) {
    const auto target = ctx.weight_gradient(weight);
    weight_gradient = target.tensor;
    accumulate = target.accumulate;
  }
  const TensorId partial = wants_x ? ctx.partial(x) : kNoTensor;
  const auto out =
      ctx.emit(OpKind::layer_norm_grad, {x, weight, op.outputs[at::stats], d_y, partial, ctx.step()},
               {{"accumulate", accumulate}}, {wants_x ? kNewTensor : kNoTensor, weight_gradient},
               "d_" + ctx.graph().tensor(x).name);
  if (wants_x) ctx.set_gradient(x, out[operand::layer_norm_grad::d_x]);
}

// The partial sums of the weight's gradient.
int64_t scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::layer_norm_grad;
  if (!op.has_output(at::d_weight)) return 0;
  const Shape& x = input_tensor(g, op, at::x).shape;
  return layer_norm_blocks(x[0]) * x[1] * int64_t{sizeof(float)};
}

}  // namespace

const OpRule layer_norm_rule{.kind = OpKind::layer_norm,
                             .infer = infer,
                             .gradient = gradient,
                             .reuse = {{operand::layer_norm::y, operand::layer_norm::x}}};
const OpRule layer_norm_grad_rule{
    .kind = OpKind::layer_norm_grad,
    .infer = infer_grad,
    .scratch_bytes = scratch,
    .gpu_scratch_bytes = scratch,
    .reuse = {{operand::layer_norm_grad::d_x, operand::layer_norm_grad::d_x_in}},
    .launches = launches_of_gradients<operand::layer_norm_grad>,
    .updates = true};

}  // namespace plimsoll
