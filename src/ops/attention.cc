// attention: causal softmax(q k^T * scale) v within each sequence of the flat token axis, flash style: no
// score tensor. Grouped heads (N query, K key/value) and a sliding window are attributes. `length` is the
// longest sequence planned for. Saved for the gradient: q, k, v, o and the log-sum-exp of each row.
// attention_cached: the same for generation, over a cache to which the new keys and values are appended.
#include "graph/op_kind.h"
#include "ops/attention_shape.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// Half of the scores are masked; a window cuts them further.
double score_pairs(const Graph& g, const Op& op) {
  const auto tokens = static_cast<double>(input_tensor(g, op, 0).shape[0]);
  double reach = static_cast<double>(op.attr_int("length")) / 2.0;
  const auto window = static_cast<double>(op.attr_int("window"));
  if (window > 0 && window < reach) reach = window;
  return tokens * reach;
}

Cost attention_cost(const Graph& g, const Op& op, double products) {
  Cost cost{2.0 * products * score_pairs(g, op) * static_cast<double>(input_tensor(g, op, 0).shape[1]), 0};
  for (const TensorId id : op.inputs) cost.bytes += static_cast<double>(g.tensor(id).bytes());
  for (const TensorId id : op.outputs) cost.bytes += static_cast<double>(g.tensor(id).bytes());
  return cost;
}

// q [T, N*D], k [T, K*D], v [T, K*D], seq_starts [B+1], step -> o like q, lse f32 [T, N]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& q = input_tensor(g, op, 0);
  const Tensor& k = input_tensor(g, op, 1);
  const int64_t head = op.attr_int("head_dim");
  require(q.shape[1] % head == 0 && k.shape[1] % head == 0 && q.shape[1] % k.shape[1] == 0, g, op,
          "attention: heads do not divide");
  require(k.shape == input_tensor(g, op, 2).shape && q.shape[0] == k.shape[0], g, op, "attention: shapes");
  return {{"", q.shape, q.dtype}, {".lse", {q.shape[0], q.shape[1] / head}, DType::f32}};
}

// q, k, v, o, lse, d_o, seq_starts, step -> d_q, d_k, d_v
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  const Tensor& q = input_tensor(g, op, 0);
  const Tensor& k = input_tensor(g, op, 1);
  return {{".q", q.shape, q.dtype}, {".k", k.shape, k.dtype}, {".v", k.shape, k.dtype}};
}

// q [T, N*D], k, v [T, K*D], step -> o like q; k_cache, v_cache [C, K*D] are extended in place
std::vector<OutputSpec> infer_cached(const Graph& g, const Op& op) {
  const Tensor& q = input_tensor(g, op, 0);
  const Tensor& k = input_tensor(g, op, 1);
  const Shape cache{op.attr_int("capacity"), k.shape[1]};
  return {{"", q.shape, q.dtype}, {".k_cache", cache, k.dtype}, {".v_cache", cache, k.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  if (!ctx.wants(op.inputs[0]) && !ctx.wants(op.inputs[1]) && !ctx.wants(op.inputs[2])) return;
  const auto out =
      ctx.emit(OpKind::attention_grad,
               {op.inputs[0], op.inputs[1], op.inputs[2], op.outputs[0], op.outputs[1],
                ctx.gradient_of(op.outputs[0]), op.inputs[3], op.inputs[4]},
               op.attrs, {kNewTensor, kNewTensor, kNewTensor}, "d_" + ctx.graph().tensor(op.outputs[0]).name);
  for (size_t i = 0; i < 3; ++i)
    if (ctx.wants(op.inputs[i])) ctx.add_gradient(op.inputs[i], out[i]);
}

}  // namespace

AttentionShape attention_shape(const Graph& g, const Op& op) {
  const Tensor& q = input_tensor(g, op, 0);
  const int64_t head = op.attr_int("head_dim");
  return {.length = op.attr_int("length"),
          .heads = q.shape[1] / head,
          .kv_heads = input_tensor(g, op, 1).shape[1] / head,
          .head_dim = head};
}

namespace {

int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return attention_forward_scratch_bytes(attention_shape(g, op), device.threads);
}
int64_t scratch_grad(const Graph& g, const Op& op, const DeviceDescription& device) {
  return attention_backward_scratch_bytes(attention_shape(g, op), device.threads);
}

Cost cost(const Graph& g, const Op& op) { return attention_cost(g, op, 2.0); }
Cost cost_grad(const Graph& g, const Op& op) { return attention_cost(g, op, 5.0); }
template <Cost (*Costs)(const Graph&, const Op&)>
Work work(const Graph& g, const Op& op) {
  return {.products = {},
          .amount = Costs(g, op).flops,
          .at = static_cast<double>(op.attr_int("length")),
          .dtype = input_tensor(g, op, 0).dtype,
          .head_dim = op.attr_int("head_dim"),
          .arithmetic = true};
}
Cost cost_cached(const Graph& g, const Op& op) {
  Cost total;
  for (const TensorId id : op.outputs) total.bytes += static_cast<double>(g.tensor(id).bytes());
  return total;
}

}  // namespace

const OpRule attention_rule{.kind = OpKind::attention,
                            .infer = infer,
                            .gradient = gradient,
                            .cost = cost,
                            .work = work<cost>,
                            .scratch_bytes = scratch,
                            .recompute = RecomputeClass::mixer};
const OpRule attention_grad_rule{.kind = OpKind::attention_grad,
                                 .infer = infer_grad,
                                 .cost = cost_grad,
                                 .work = work<cost_grad>,
                                 .scratch_bytes = scratch_grad};
const OpRule attention_cached_rule{.kind = OpKind::attention_cached,
                                   .infer = infer_cached,
                                   .cost = cost_cached,
                                   .scratch_bytes = scratch,
                                   .recompute = RecomputeClass::mixer};

}  // namespace plimsoll
