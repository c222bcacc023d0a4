// linear: y = scale * x W^T + rider_scale * t B^T + bias + addend, the addend being what LoRA adds to, and t
// and B its rider, which is summed in the same product (passes/merge_adapters.h). Its gradients: linear_dx
// adds into the gradient other consumers of x have given and takes a rider likewise, linear_dw accumulates
// straight into the weight's gradient.
#include "graph/op_kind.h"
#include "ops/linear/linear_products.h"
#include "ops/pointwise/elementwise_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

double count(const Graph& g, TensorId id) {
  return id == kNoTensor ? 0.0 : static_cast<double>(g.tensor(id).bytes());
}

Cost matmul_cost(const Graph& g, const Op& op, const MatmulShape& shape) {
  Cost cost;
  cost.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
               static_cast<double>(shape.k + shape.rider);
  for (const TensorId id : op.inputs) cost.bytes += count(g, id);
  for (const TensorId id : op.outputs) cost.bytes += count(g, id);
  return cost;
}

// A rider of a product [rows, columns] of `type`: input `t` [rows, r], and one that is [columns, r], or
// turned [r, columns].
void require_rider(const Graph& g, const Op& op, size_t t, const Shape& product, DType type, bool turned) {
  require(op.has_input(t) == op.has_input(t + 1), g, op, "a rider has two operands");
  if (!op.has_input(t)) return;
  const Tensor& left = input_tensor(g, op, t);
  const Tensor& right = input_tensor(g, op, t + 1);
  require(left.shape.rank() == 2 && right.shape.rank() == 2, g, op, "a rider's shapes");
  require(left.shape[0] == product[0] && right.shape[turned ? 1 : 0] == product[1] &&
              left.shape[1] == right.shape[turned ? 0 : 1],
          g, op, "a rider's shapes");
  require(left.dtype == type && right.dtype == type, g, op, "a rider differs in type");
  require(op.attrs.contains("rider_scale"), g, op, "a rider without a scale");
}

// x [T, in], weight [out, in], bias [out]?, addend [T, out]?, step?, t [T, r]?, B [out, r]? -> y [T, out]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const Tensor& weight = input_tensor(g, op, 1);
  require(x.shape.rank() == 2 && weight.shape.rank() == 2 && x.shape[1] == weight.shape[1], g, op,
          "linear: shapes");
  require(x.dtype == weight.dtype, g, op, "linear: x and weight differ in type");
  const Shape y{x.shape[0], weight.shape[0]};
  require(!op.has_input(3) || g.tensor(op.inputs[3]).shape == y, g, op, "linear: the addend's shape");
  require_rider(g, op, 5, y, x.dtype, false);
  return {{"", y, x.dtype}};
}

// d_y [T, out], weight [out, in], d_x_in [T, in]?, step?, d_t [T, r]?, A [r, in]? -> d_x [T, in]
std::vector<OutputSpec> infer_dx(const Graph& g, const Op& op) {
  const Tensor& d_y = input_tensor(g, op, 0);
  const Tensor& weight = input_tensor(g, op, 1);
  require(d_y.shape[1] == weight.shape[0], g, op, "linear_dx: shapes");
  const Shape d_x{d_y.shape[0], weight.shape[1]};
  require_rider(g, op, 4, d_x, d_y.dtype, true);
  return {{"", d_x, d_y.dtype}};
}

// x [T, in], d_y [T, out], step -> gradient [out, in]
std::vector<OutputSpec> infer_dw(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const Tensor& d_y = input_tensor(g, op, 1);
  require(x.shape[0] == d_y.shape[0] && x.dtype == d_y.dtype, g, op, "linear_dw: shapes");
  return {{".grad", {d_y.shape[1], x.shape[1]}, gradient_dtype(g, op, 0)}};
}

// d_y [T, out], step -> gradient [out]
std::vector<OutputSpec> infer_bias(const Graph& g, const Op& op) {
  return {{".grad", {input_tensor(g, op, 0).shape[1]}, gradient_dtype(g, op, 0)}};
}

// The partial sums of column_sums.
int64_t bias_scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  const Tensor& d_y = input_tensor(g, op, 0);
  return column_sum_blocks(d_y.shape[0]) * d_y.shape[1] * int64_t{sizeof(float)};
}

// Of the right and of the left operand of a pair, x W^T.
void give_weight(GradientContext& ctx, TensorId x, TensorId weight, TensorId d_y, double scale) {
  if (!ctx.wants(weight)) return;
  const auto target = ctx.weight_gradient(weight);
  ctx.emit(OpKind::linear_dw, {x, d_y, ctx.step()}, {{"accumulate", target.accumulate}, {"scale", scale}},
           {target.tensor}, "");
}
void give_input(GradientContext& ctx, const Op& op, TensorId x, TensorId weight, TensorId d_y, double scale) {
  if (!ctx.wants(x)) return;
  const auto out =
      ctx.emit(OpKind::linear_dx, {d_y, weight, ctx.partial(x), op.has_input(4) ? ctx.step() : kNoTensor},
               {{"scale", scale}}, {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.set_gradient(x, out[0]);
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0], weight = op.inputs[1];
  const TensorId d_y = ctx.gradient_of(op.outputs[0]);
  const double scale = op.attr_float("scale");
  if (op.has_input(3) && ctx.wants(op.inputs[3])) ctx.add_gradient(op.inputs[3], d_y);
  if (op.has_input(5)) {
    give_weight(ctx, op.inputs[5], op.inputs[6], d_y, op.attr_float("rider_scale"));
    give_input(ctx, op, op.inputs[5], op.inputs[6], d_y, op.attr_float("rider_scale"));
  }
  give_weight(ctx, x, weight, d_y, scale);
  if (op.has_input(2) && ctx.wants(op.inputs[2])) {
    const auto target = ctx.weight_gradient(op.inputs[2]);
    ctx.emit(OpKind::bias_grad, {d_y, ctx.step()}, {{"accumulate", target.accumulate}}, {target.tensor}, "");
  }
  give_input(ctx, op, x, weight, d_y, scale);
}

template <MatmulShape (*Shape)(const Graph&, const Op&)>
Cost cost(const Graph& g, const Op& op) {
  return matmul_cost(g, op, Shape(g, op));
}

// The product is added to input `Addend`, where it is there; the input behind it says which rows are live.
template <MatmulShape (*Shape)(const Graph&, const Op&), size_t Addend>
Work work(const Graph& g, const Op& op) {
  const bool stops = op.has_input(Addend + 1);
  return {.products = {{Shape(g, op), op.has_input(Addend), stops ? &MatmulShape::m : nullptr}}};
}
Work work_dw(const Graph& g, const Op& op) {
  return {.products = {{linear_dw_product(g, op), true, op.has_input(2) ? &MatmulShape::k : nullptr}}};
}

template <MatmulShape (*Shape)(const Graph&, const Op&)>
int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return device.matmul_scratch_bytes(Shape(g, op));
}

}  // namespace

const OpRule linear_rule{.kind = OpKind::linear,
                         .infer = infer,
                         .gradient = gradient,
                         .cost = cost<linear_product>,
                         .work = work<linear_product, 3>,
                         .scratch_bytes = scratch<linear_product>,
                         .gpu_scratch_bytes = scratch<linear_product>,
                         .reuse = {{0, 3}},
                         .recompute = RecomputeClass::product};
const OpRule linear_dx_rule{.kind = OpKind::linear_dx,
                            .infer = infer_dx,
                            .cost = cost<linear_dx_product>,
                            .work = work<linear_dx_product, 2>,
                            .scratch_bytes = scratch<linear_dx_product>,
                            .gpu_scratch_bytes = scratch<linear_dx_product>,
                            .reuse = {{0, 2}}};
const OpRule linear_dw_rule{.kind = OpKind::linear_dw,
                            .infer = infer_dw,
                            .cost = cost<linear_dw_product>,
                            .work = work_dw,
                            .scratch_bytes = scratch<linear_dw_product>,
                            .gpu_scratch_bytes = scratch<linear_dw_product>,
                            .updates = true};
const OpRule bias_grad_rule{.kind = OpKind::bias_grad,
                            .infer = infer_bias,
                            .scratch_bytes = bias_scratch,
                            .gpu_scratch_bytes = bias_scratch,
                            .updates = true};

}  // namespace plimsoll
