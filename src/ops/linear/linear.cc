// linear: y = scale * x W^T + adapter_scale * t B^T + bias + addend, the addend being what LoRA adds to, and t
// and B its fused adapter, which is summed in the same product (passes/merge_adapters.h). Its gradients: linear_dx
// adds into the gradient other consumers of x have given and takes a fused adapter likewise, linear_dw accumulates
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
               static_cast<double>(shape.k + shape.adapter);
  for (const TensorId id : op.inputs) cost.bytes += count(g, id);
  for (const TensorId id : op.outputs) cost.bytes += count(g, id);
  return cost;
}

// A fused adapter's two inputs; that to the right is turned in linear_dx.
struct AdapterInputs {
  size_t left, right;
  bool turned;
};

// Checks the fused adapter of a product [rows, columns] of `type`: the left one is [rows, r], the right one [columns,
// r], or turned [r, columns].
void require_adapter(const Graph& g, const Op& op, const AdapterInputs& adapter, const Shape& product,
                     DType type) {
  const auto [left_input, right_input, turned] = adapter;
  require(op.has_input(left_input) == op.has_input(right_input), g, op, "a fused adapter has two operands");
  if (!op.has_input(left_input)) return;
  const Tensor& left = input_tensor(g, op, left_input);
  const Tensor& right = input_tensor(g, op, right_input);
  require(left.shape.rank() == 2 && right.shape.rank() == 2, g, op, "a fused adapter's shapes");
  require(left.shape[0] == product[0] && right.shape[turned ? 1 : 0] == product[1] &&
              left.shape[1] == right.shape[turned ? 0 : 1],
          g, op, "a fused adapter's shapes");
  require(left.dtype == type && right.dtype == type, g, op, "a fused adapter differs in type");
  require(op.attrs.contains("adapter_scale"), g, op, "a fused adapter without a scale");
}

// x [T, in], weight [out, in], bias [out]?, addend [T, out]?, step?, t [T, r]?, B [out, r]? -> y [T, out]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::linear;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(x.shape.rank() == 2 && weight.shape.rank() == 2 && x.shape[1] == weight.shape[1], g, op,
          "linear: shapes");
  require(x.dtype == weight.dtype, g, op, "linear: x and weight differ in type");
  const Shape y{x.shape[0], weight.shape[0]};
  require(!op.has_input(at::addend) || g.tensor(op.inputs[at::addend]).shape == y, g, op,
          "linear: the addend's shape");
  require_adapter(g, op, {at::t, at::b, false}, y, x.dtype);
  return {{"", y, x.dtype}};
}

// d_y [T, out], weight [out, in], d_x_in [T, in]?, step?, d_t [T, r]?, A [r, in]? -> d_x [T, in]
std::vector<OutputSpec> infer_dx(const Graph& g, const Op& op) {
  using at = operand::linear_dx;
  const Tensor& d_y = input_tensor(g, op, at::d_y);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(d_y.shape[1] == weight.shape[0], g, op, "linear_dx: shapes");
  const Shape d_x{d_y.shape[0], weight.shape[1]};
  require_adapter(g, op, {at::d_t, at::a, true}, d_x, d_y.dtype);
  return {{"", d_x, d_y.dtype}};
}

// x [T, in], d_y [T, out], step -> gradient [out, in]
std::vector<OutputSpec> infer_dw(const Graph& g, const Op& op) {
  using at = operand::linear_dw;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& d_y = input_tensor(g, op, at::d_y);
  require(x.shape[0] == d_y.shape[0] && x.dtype == d_y.dtype, g, op, "linear_dw: shapes");
  return {{".grad", {d_y.shape[1], x.shape[1]}, gradient_dtype(g, op, at::d_weight)}};
}

// d_y [T, out], step -> gradient [out]
std::vector<OutputSpec> infer_bias(const Graph& g, const Op& op) {
  using at = operand::bias_grad;
  return {{".grad", {input_tensor(g, op, at::d_y).shape[1]}, gradient_dtype(g, op, at::d_bias)}};
}

// The partial sums of column_sums.
int64_t bias_scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::bias_grad;
  const Tensor& d_y = input_tensor(g, op, at::d_y);
  return column_sum_blocks(d_y.shape[0]) * d_y.shape[1] * int64_t{sizeof(float)};
}

// Gives the gradients of the right and of the left operand of a pair, x W^T.
void give_weight(GradientContext& ctx, TensorId x, TensorId weight, TensorId d_y, double scale) {
  if (!ctx.wants(weight)) return;
  const auto target = ctx.weight_gradient(weight);
  ctx.emit(OpKind::linear_dw, {x, d_y, ctx.step()}, {{"accumulate", target.accumulate}, {"scale", scale}},
           {target.tensor}, "");
}
void give_input(GradientContext& ctx, const Op& op, TensorId x, TensorId weight, TensorId d_y, double scale) {
  if (!ctx.wants(x)) return;
  const auto out =
      ctx.emit(OpKind::linear_dx,
               {d_y, weight, ctx.partial(x), op.has_input(operand::linear::step) ? ctx.step() : kNoTensor},
               {{"scale", scale}}, {kNewTensor}, "d_" + ctx.graph().tensor(x).name);
  ctx.set_gradient(x, out[operand::linear_dx::d_x]);
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::linear;
  const TensorId x = op.inputs[at::x], weight = op.inputs[at::weight];
  const TensorId d_y = ctx.gradient_of(op.outputs[at::y]);
  const double scale = op.attr_float("scale");
  if (op.has_input(at::addend) && ctx.wants(op.inputs[at::addend]))
    ctx.add_gradient(op.inputs[at::addend], d_y);
  if (op.has_input(at::t)) {
    give_weight(ctx, op.inputs[at::t], op.inputs[at::b], d_y, op.attr_float("adapter_scale"));
    give_input(ctx, op, op.inputs[at::t], op.inputs[at::b], d_y, op.attr_float("adapter_scale"));
  }
  give_weight(ctx, x, weight, d_y, scale);
  if (op.has_input(at::bias) && ctx.wants(op.inputs[at::bias])) {
    const auto target = ctx.weight_gradient(op.inputs[at::bias]);
    ctx.emit(OpKind::bias_grad, {d_y, ctx.step()}, {{"accumulate", target.accumulate}}, {target.tensor}, "");
  }
  give_input(ctx, op, x, weight, d_y, scale);
}

template <MatmulShape (*Shape)(const Graph&, const Op&)>
Cost cost(const Graph& g, const Op& op) {
  return matmul_cost(g, op, Shape(g, op));
}

// The product is added to input `Addend`, where it is there; `Step` says which rows are live.
template <MatmulShape (*Shape)(const Graph&, const Op&), size_t Addend, size_t Step>
Work work(const Graph& g, const Op& op) {
  const bool stops = op.has_input(Step);
  return {.products = {{Shape(g, op), op.has_input(Addend), stops ? &MatmulShape::m : nullptr}}};
}
Work work_dw(const Graph& g, const Op& op) {
  using at = operand::linear_dw;
  return {.products = {{linear_dw_product(g, op), true, op.has_input(at::step) ? &MatmulShape::k : nullptr}}};
}

// On a GPU a product is one launch; a library's has up to four (what it is added to is brought, values are
// cleared, parts added up), and its fused adapter follows it.
template <size_t AdapterInputs>
int64_t launches(const Graph&, const Op& op, bool library) {
  return product_launches(library) + (library && op.has_input(AdapterInputs) ? 1 : 0);
}
int64_t launches_dw(const Graph&, const Op&, bool library) { return product_launches(library); }
int64_t launches_bias(const Graph&, const Op&, bool) { return 2; }

template <MatmulShape (*Shape)(const Graph&, const Op&)>
int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return device.matmul_scratch_bytes(Shape(g, op));
}

}  // namespace

const OpRule linear_rule{.kind = OpKind::linear,
                         .infer = infer,
                         .gradient = gradient,
                         .cost = cost<linear_product>,
                         .work = work<linear_product, operand::linear::addend, operand::linear::step>,
                         .scratch_bytes = scratch<linear_product>,
                         .gpu_scratch_bytes = scratch<linear_product>,
                         .reuse = {{operand::linear::y, operand::linear::addend}},
                         .launches = launches<operand::linear::t>,
                         .recompute = RecomputeClass::product};
const OpRule linear_dx_rule{
    .kind = OpKind::linear_dx,
    .infer = infer_dx,
    .cost = cost<linear_dx_product>,
    .work = work<linear_dx_product, operand::linear_dx::d_x_in, operand::linear_dx::step>,
    .scratch_bytes = scratch<linear_dx_product>,
    .gpu_scratch_bytes = scratch<linear_dx_product>,
    .reuse = {{operand::linear_dx::d_x, operand::linear_dx::d_x_in}},
    .launches = launches<operand::linear_dx::d_t>};
const OpRule linear_dw_rule{.kind = OpKind::linear_dw,
                            .infer = infer_dw,
                            .cost = cost<linear_dw_product>,
                            .work = work_dw,
                            .scratch_bytes = scratch<linear_dw_product>,
                            .gpu_scratch_bytes = scratch<linear_dw_product>,
                            .launches = launches_dw,
                            .updates = true};
const OpRule bias_grad_rule{.kind = OpKind::bias_grad,
                            .infer = infer_bias,
                            .scratch_bytes = bias_scratch,
                            .gpu_scratch_bytes = bias_scratch,
                            .launches = launches_bias,
                            .updates = true};

}  // namespace plimsoll
