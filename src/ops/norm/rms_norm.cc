// rms_norm: y = x / sqrt(mean(x^2) + eps) * weight over groups of weight.size() values (the whole row, or one
// head). For bf16 the normalised value is rounded before the product, as transformers does; attribute `form` says
// what other families do (ops/norm/norm_form.h).
#include "graph/op_kind.h"
#include "ops/norm/norm_form.h"
#include "ops/norm/rms_norm_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, G*H], weight [H] -> y like x, rstd f32 [T, G]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::rms_norm;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(x.shape.rank() == 2 && weight.shape.rank() == 1 && x.shape[1] % weight.shape[0] == 0, g, op,
          "rms_norm: shapes");
  require(!op.attrs.contains(kNormForm) || op.attr_text(kNormForm) == to_string(norm_form(op)), g, op,
          "rms_norm: an unknown form");
  return {{"", x.shape, x.dtype}, {".rstd", {x.shape[0], x.shape[1] / weight.shape[0]}, DType::f32}};
}

// x, weight, rstd, d_y, d_x_in?, step -> d_x (= d_x_in + ...), gradient of weight?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::rms_norm_grad;
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", x.shape, x.dtype},
          {".weight_grad", input_tensor(g, op, at::weight).shape, gradient_dtype(g, op, at::d_weight)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::rms_norm;
  const TensorId x = op.inputs[at::x];
  const TensorId weight = op.inputs[at::weight];
  const bool wants_x = ctx.wants(x);
  TensorId weight_gradient = kNoTensor;
  int64_t accumulate = 0;
  if (ctx.wants(weight)) {
    const auto target = ctx.weight_gradient(weight);
    weight_gradient = target.tensor;
    accumulate = target.accumulate;
  }
  const TensorId partial = wants_x ? ctx.partial(x) : kNoTensor;
  Attrs attrs{{"accumulate", accumulate}, {"eps", op.attr_float("eps")}};
  set_norm_form(attrs, norm_form(op));
  const auto out =
      ctx.emit(OpKind::rms_norm_grad,
               {x, weight, op.outputs[at::rstd], ctx.gradient_of(op.outputs[at::y]), partial, ctx.step()},
               std::move(attrs), {wants_x ? kNewTensor : kNoTensor, weight_gradient},
               "d_" + ctx.graph().tensor(x).name);
  if (wants_x) ctx.set_gradient(x, out[operand::rms_norm_grad::d_x]);
}

// The partial sums of the weight's gradient.
int64_t scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::rms_norm_grad;
  if (!op.has_output(at::d_weight)) return 0;
  const Tensor& x = input_tensor(g, op, at::x);
  const int64_t width = input_tensor(g, op, at::weight).shape[0];
  const int64_t rows = x.shape.elements() / width;
  return (rows + kRmsNormRowsPerBlock - 1) / kRmsNormRowsPerBlock * width * int64_t{sizeof(float)};
}

}  // namespace

const OpRule rms_norm_rule{.kind = OpKind::rms_norm,
                           .infer = infer,
                           .gradient = gradient,
                           .reuse = {{operand::rms_norm::y, operand::rms_norm::x}}};
const OpRule rms_norm_grad_rule{.kind = OpKind::rms_norm_grad,
                                .infer = infer_grad,
                                .scratch_bytes = scratch,
                                .gpu_scratch_bytes = scratch,
                                .reuse = {{operand::rms_norm_grad::d_x, operand::rms_norm_grad::d_x_in}},
                                .launches = launches_of_gradients<operand::rms_norm_grad>,
                                .updates = true,
                                .shortens = Shortens::rows};

}  // namespace plimsoll
