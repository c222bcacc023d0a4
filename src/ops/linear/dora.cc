// DoRA: y = magnitude / |W + s B A| * (W + s B A) x, the length of each row taken as a constant by the
// gradient, as the paper and PEFT have it. u is (W + s B A) x; where the adapter's input is dropped at random
// the rest of PEFT's sum is added: y = W x + magnitude / lengths * u - W dropout(x).
#include "graph/op_kind.h"
#include "ops/linear/dora_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// A [r, in], weight [out, in], B [out, r] -> lengths f32 [out]
std::vector<OutputSpec> infer_norm(const Graph& g, const Op& op) {
  using at = operand::dora_norm;
  const Tensor& a = input_tensor(g, op, at::a);
  const Tensor& weight = input_tensor(g, op, at::weight);
  const Tensor& b = input_tensor(g, op, at::b);
  require(weight.shape.rank() == 2 && a.shape[1] == weight.shape[1] && b.shape[0] == weight.shape[0] &&
              a.shape[0] == b.shape[1],
          g, op, "dora_norm: shapes");
  require(a.dtype == weight.dtype && b.dtype == weight.dtype, g, op, "dora_norm: types differ");
  return {{"", {weight.shape[0]}, DType::f32}};
}

Cost cost_norm(const Graph& g, const Op& op) {
  using at = operand::dora_norm;
  const Tensor& weight = input_tensor(g, op, at::weight);
  const auto r = static_cast<double>(input_tensor(g, op, at::a).shape[0]);
  return {2.0 * r * static_cast<double>(weight.shape.elements()), static_cast<double>(weight.bytes())};
}

void require_vectors(const Graph& g, const Op& op) {
  using at = operand::dora_scale;
  const int64_t width = input_tensor(g, op, at::u).shape[1];
  for (const size_t i : {at::magnitude, at::lengths})
    require(input_tensor(g, op, i).shape == Shape{width} && input_tensor(g, op, i).dtype == DType::f32, g, op,
            "dora_scale: magnitude and lengths are f32, one a column");
}

// u [T, out], magnitude [out], lengths [out], step?, bias [out]?, minus [T, out]?, addend [T, out]? -> y like
// u
std::vector<OutputSpec> infer_scale(const Graph& g, const Op& op) {
  using at = operand::dora_scale;
  const Tensor& u = input_tensor(g, op, at::u);
  require_vectors(g, op);
  for (const size_t i : {at::minus, at::addend})
    require(!op.has_input(i) || g.tensor(op.inputs[i]).shape == u.shape, g, op, "dora_scale: shapes");
  return {{"", u.shape, u.dtype}};
}

// u, magnitude, lengths, d_y, step -> d_u?, gradient of magnitude?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::dora_scale_grad;
  const Tensor& u = input_tensor(g, op, at::u);
  require_vectors(g, op);
  require(input_tensor(g, op, at::d_y).shape == u.shape, g, op, "dora_scale_grad: shapes");
  return {{"", u.shape, u.dtype}, {".grad", {u.shape[1]}, DType::f32}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::dora_scale;
  const TensorId u = op.inputs[at::u], magnitude = op.inputs[at::magnitude];
  const TensorId d_y = ctx.gradient_of(op.outputs[at::y]);
  if (op.has_input(at::addend) && ctx.wants(op.inputs[at::addend]))
    ctx.add_gradient(op.inputs[at::addend], d_y);
  if (op.has_input(at::minus) && ctx.wants(op.inputs[at::minus])) {
    const auto out = ctx.emit(OpKind::scale, {d_y}, {{"factor", -1.0}}, {kNewTensor},
                              "d_" + ctx.graph().tensor(op.inputs[at::minus]).name);
    ctx.add_gradient(op.inputs[at::minus], out[operand::scale::y]);
  }
  const bool wants_u = ctx.wants(u);
  TensorId d_magnitude = kNoTensor;
  int64_t accumulate = 0;
  if (ctx.wants(magnitude)) {
    const auto target = ctx.weight_gradient(magnitude);
    d_magnitude = target.tensor;
    accumulate = target.accumulate;
  }
  const auto out = ctx.emit(OpKind::dora_scale_grad, {u, magnitude, op.inputs[at::lengths], d_y, ctx.step()},
                            {{"accumulate", accumulate}}, {wants_u ? kNewTensor : kNoTensor, d_magnitude},
                            "d_" + ctx.graph().tensor(u).name);
  if (wants_u) ctx.add_gradient(u, out[operand::dora_scale_grad::d_u]);
}

// The partial sums of the magnitude's gradient.
int64_t scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::dora_scale_grad;
  if (!op.has_output(at::d_magnitude)) return 0;
  const Shape& u = input_tensor(g, op, at::u).shape;
  return dora_blocks(u[0]) * u[1] * int64_t{sizeof(float)};
}

// On a GPU the magnitude's gradient is a launch of its own.
int64_t launches_grad(const Graph&, const Op& op, bool) {
  return op.has_output(operand::dora_scale_grad::d_magnitude) ? 2 : 1;
}

}  // namespace

const OpRule dora_norm_rule{
    .kind = OpKind::dora_norm, .infer = infer_norm, .cost = cost_norm, .recompute = RecomputeClass::product};
const OpRule dora_scale_rule{.kind = OpKind::dora_scale,
                             .infer = infer_scale,
                             .gradient = gradient,
                             .reuse = {{operand::dora_scale::y, operand::dora_scale::u},
                                       {operand::dora_scale::y, operand::dora_scale::minus},
                                       {operand::dora_scale::y, operand::dora_scale::addend}}};
const OpRule dora_scale_grad_rule{.kind = OpKind::dora_scale_grad,
                                  .infer = infer_grad,
                                  .scratch_bytes = scratch,
                                  .gpu_scratch_bytes = scratch,
                                  .reuse = {{operand::dora_scale_grad::d_u, operand::dora_scale_grad::u},
                                            {operand::dora_scale_grad::d_u, operand::dora_scale_grad::d_y}},
                                  .launches = launches_grad,
                                  .updates = true};

}  // namespace plimsoll
