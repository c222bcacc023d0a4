// DoRA: y = magnitude / |W + s B A| * (W + s B A) x, the length of each row taken as a constant by the
// gradient, as the paper and PEFT have it. u is (W + s B A) x; where the adapter's input is dropped at random
// the rest of PEFT's sum is added: y = W x + magnitude / lengths * u - W dropout(x).
#include "graph/op_kind.h"
#include "ops/linear/dora_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

constexpr size_t kStep = 3, kBias = 4, kMinus = 5, kAddend = 6;

// A [r, in], weight [out, in], B [out, r] -> lengths f32 [out]
std::vector<OutputSpec> infer_norm(const Graph& g, const Op& op) {
  const Tensor& a = input_tensor(g, op, 0);
  const Tensor& weight = input_tensor(g, op, 1);
  const Tensor& b = input_tensor(g, op, 2);
  require(weight.shape.rank() == 2 && a.shape[1] == weight.shape[1] && b.shape[0] == weight.shape[0] &&
              a.shape[0] == b.shape[1],
          g, op, "dora_norm: shapes");
  require(a.dtype == weight.dtype && b.dtype == weight.dtype, g, op, "dora_norm: types differ");
  return {{"", {weight.shape[0]}, DType::f32}};
}

Cost cost_norm(const Graph& g, const Op& op) {
  const Tensor& weight = input_tensor(g, op, 1);
  const auto r = static_cast<double>(input_tensor(g, op, 0).shape[0]);
  return {2.0 * r * static_cast<double>(weight.shape.elements()), static_cast<double>(weight.bytes())};
}

void require_vectors(const Graph& g, const Op& op) {
  const int64_t width = input_tensor(g, op, 0).shape[1];
  for (const size_t i : {1, 2})
    require(input_tensor(g, op, i).shape == Shape{width} && input_tensor(g, op, i).dtype == DType::f32, g, op,
            "dora_scale: magnitude and lengths are f32, one a column");
}

// u [T, out], magnitude [out], lengths [out], step?, bias [out]?, minus [T, out]?, addend [T, out]? -> y like
// u
std::vector<OutputSpec> infer_scale(const Graph& g, const Op& op) {
  const Tensor& u = input_tensor(g, op, 0);
  require_vectors(g, op);
  for (const size_t i : {kMinus, kAddend})
    require(!op.has_input(i) || g.tensor(op.inputs[i]).shape == u.shape, g, op, "dora_scale: shapes");
  return {{"", u.shape, u.dtype}};
}

// u, magnitude, lengths, d_y, step -> d_u?, gradient of magnitude?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  const Tensor& u = input_tensor(g, op, 0);
  require_vectors(g, op);
  require(input_tensor(g, op, 3).shape == u.shape, g, op, "dora_scale_grad: shapes");
  return {{"", u.shape, u.dtype}, {".grad", {u.shape[1]}, DType::f32}};
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId u = op.inputs[0], magnitude = op.inputs[1];
  const TensorId d_y = ctx.gradient_of(op.outputs[0]);
  if (op.has_input(kAddend) && ctx.wants(op.inputs[kAddend])) ctx.add_gradient(op.inputs[kAddend], d_y);
  if (op.has_input(kMinus) && ctx.wants(op.inputs[kMinus])) {
    const auto out = ctx.emit(OpKind::scale, {d_y}, {{"factor", -1.0}}, {kNewTensor},
                              "d_" + ctx.graph().tensor(op.inputs[kMinus]).name);
    ctx.add_gradient(op.inputs[kMinus], out[0]);
  }
  const bool wants_u = ctx.wants(u);
  TensorId d_magnitude = kNoTensor;
  int64_t accumulate = 0;
  if (ctx.wants(magnitude)) {
    const auto target = ctx.weight_gradient(magnitude);
    d_magnitude = target.tensor;
    accumulate = target.accumulate;
  }
  const auto out = ctx.emit(OpKind::dora_scale_grad, {u, magnitude, op.inputs[2], d_y, ctx.step()},
                            {{"accumulate", accumulate}}, {wants_u ? kNewTensor : kNoTensor, d_magnitude},
                            "d_" + ctx.graph().tensor(u).name);
  if (wants_u) ctx.add_gradient(u, out[0]);
}

// The partial sums of the magnitude's gradient.
int64_t scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  if (!op.has_output(1)) return 0;
  const Shape& u = input_tensor(g, op, 0).shape;
  return dora_blocks(u[0]) * u[1] * int64_t{sizeof(float)};
}

}  // namespace

const OpRule dora_norm_rule{
    .kind = OpKind::dora_norm, .infer = infer_norm, .cost = cost_norm, .recompute = RecomputeClass::product};
const OpRule dora_scale_rule{.kind = OpKind::dora_scale,
                             .infer = infer_scale,
                             .gradient = gradient,
                             .reuse = {{0, 0}, {0, kMinus}, {0, kAddend}}};
const OpRule dora_scale_grad_rule{.kind = OpKind::dora_scale_grad,
                                  .infer = infer_grad,
                                  .scratch_bytes = scratch,
                                  .gpu_scratch_bytes = scratch,
                                  .reuse = {{0, 0}, {0, 3}},
                                  .updates = true};

}  // namespace plimsoll
