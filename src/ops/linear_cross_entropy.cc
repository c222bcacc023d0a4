// linear_cross_entropy: the output head and the loss in one op. Rows that carry a target are taken in chunks;
// a chunk's logits exist in scratch only, so whole logits never do. With gradients
// (linear_cross_entropy_grad) each chunk is visited once: logits, statistics, d_logits in place, d_x, the
// weight's gradient; nothing is saved or recomputed. Adds to metric `loss` f64 [2]: sum of losses over target
// tokens, and their count. Gradients carry loss_scale.
#include <algorithm>

#include "graph/op_kind.h"
#include "ops/linear_cross_entropy_layout.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], weight [V, H], labels [T], step -> loss f64 [2]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  require(input_tensor(g, op, 0).shape[1] == input_tensor(g, op, 1).shape[1], g, op,
          "linear_cross_entropy: shapes");
  require(input_tensor(g, op, 0).dtype == input_tensor(g, op, 1).dtype, g, op,
          "linear_cross_entropy: x and weight differ in type");
  return {{"", {2}, DType::f64}};
}

// the same -> loss, d_x [T, H]?, gradient [V, H]?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  return {{"", {2}, DType::f64},
          {"", x.shape, x.dtype},
          {".grad", input_tensor(g, op, 1).shape, gradient_dtype(g, op, 2)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  const TensorId x = op.inputs[0];
  TensorId weight_gradient = kNoTensor;
  Attrs attrs = op.attrs;
  attrs["accumulate"] = int64_t{0};
  if (ctx.wants(op.inputs[1])) {
    const auto target = ctx.weight_gradient(op.inputs[1]);
    weight_gradient = target.tensor;
    attrs["accumulate"] = target.accumulate;
  }
  const auto out = ctx.emit(OpKind::linear_cross_entropy_grad, op.inputs, attrs,
                            {op.outputs[0], ctx.wants(x) ? kNewTensor : kNoTensor, weight_gradient},
                            "d_" + ctx.graph().tensor(x).name);
  if (ctx.wants(x)) ctx.set_gradient(x, out[1]);
}

struct Sizes {
  int64_t chunk, hidden, vocab;
  DType dtype;
};

Sizes sizes_of(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  const int64_t chunk = std::min(op.attr_int("chunk"), x.shape[0]);
  return {chunk, x.shape[1], input_tensor(g, op, 1).shape[0], x.dtype};
}

int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  const CrossEntropyProducts products = cross_entropy_products(g, op);
  int64_t matmul = device.matmul_scratch_bytes(products.logits);
  if (products.d_x) matmul = std::max(matmul, device.matmul_scratch_bytes(*products.d_x));
  if (products.d_w) matmul = std::max(matmul, device.matmul_scratch_bytes(*products.d_w));
  return cross_entropy_layout(g, op).matmul + matmul;
}

// The softmax reads the logits twice and writes them once.
Work work(const Graph& g, const Op& op) {
  const CrossEntropyProducts products = cross_entropy_products(g, op);
  const Tensor& x = input_tensor(g, op, 0);
  const int64_t logits = x.shape[0] * input_tensor(g, op, 1).shape[0];
  const auto bytes = static_cast<double>(3 * logits * size_of(x.dtype));
  Work work{.products = {{products.logits}},
            .rows = x.shape[0],
            .rows_at_a_time = products.logits.m,
            .amount = bytes,
            .at = bytes,
            .dtype = x.dtype};
  if (products.d_x) work.products.push_back({*products.d_x});
  if (products.d_w) work.products.push_back({*products.d_w, true});
  return work;
}

Cost lce_cost(const Graph& g, const Op& op, double products) {
  const Sizes s = sizes_of(g, op);
  const auto rows = static_cast<double>(input_tensor(g, op, 0).shape[0]);
  const auto weights = static_cast<double>(s.vocab * s.hidden);
  const double chunks = rows / static_cast<double>(s.chunk);
  const auto element = static_cast<double>(size_of(s.dtype));
  return {2.0 * products * rows * weights,
          products * chunks * weights * element + 3.0 * rows * static_cast<double>(s.vocab) * element};
}
Cost cost(const Graph& g, const Op& op) { return lce_cost(g, op, 1.0); }
Cost cost_grad(const Graph& g, const Op& op) {
  return lce_cost(g, op, 1.0 + (op.has_output(1) ? 1.0 : 0.0) + (op.has_output(2) ? 1.0 : 0.0));
}

}  // namespace

const OpRule linear_cross_entropy_rule{.kind = OpKind::linear_cross_entropy,
                                       .infer = infer,
                                       .gradient = gradient,
                                       .cost = cost,
                                       .work = work,
                                       .scratch_bytes = scratch,
                                       .chunked = true,
                                       .gradient_replaces = true};
const OpRule linear_cross_entropy_grad_rule{.kind = OpKind::linear_cross_entropy_grad,
                                            .infer = infer_grad,
                                            .cost = cost_grad,
                                            .work = work,
                                            .scratch_bytes = scratch,
                                            .updates = true,
                                            .chunked = true};

}  // namespace plimsoll
