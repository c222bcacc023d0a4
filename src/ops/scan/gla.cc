// gla: gated linear attention within each sequence of the flat token axis. A head's state S [Dk, Dv] decays
// by its own factor per key and token, takes k^T v in, and is read by q:
//   S_t = diag(exp g_t) S_t-1 + k_t^T v_t,  o_t = scale q_t S_t,  g = max(log sigmoid(gate) / normalizer,
//   clamp_min).
// Attributes: heads N (of q and o), kv_heads K (of k, v, gate), scale, normalizer, clamp_min (-1e30: none).
// Nothing but the inputs is saved for the gradient, which makes the states again.
// With `parents` sequences are segments of trees (rows that begin with the same tokens), and a segment's
// first state is its parent's last. gla_cached: the same for generation, going on from a state that is
// updated in place; a sequence that begins (kv_length 0) finds it zero.
#include "graph/op_kind.h"
#include "ops/rules.h"
#include "ops/scan/gla_gpu_scratch.h"
#include "ops/scan/gla_shape.h"

namespace plimsoll {
namespace {

void require_shapes(const Graph& g, const Op& op) {
  using at = operand::gla;
  const Tensor& q = input_tensor(g, op, at::q);
  const Tensor& k = input_tensor(g, op, at::k);
  const Tensor& v = input_tensor(g, op, at::v);
  const int64_t heads = op.attr_int("heads");
  const int64_t kv_heads = op.attr_int("kv_heads");
  // The largest group of the kernel for one token, which holds the group's queries in a chunk's workspace.
  constexpr int64_t kLargestGroup = 256;
  require(heads > 0 && kv_heads > 0 && heads <= kLargestGroup * kv_heads && heads % kv_heads == 0 &&
              q.shape[1] % heads == 0 && v.shape[1] % kv_heads == 0 &&
              k.shape[1] * heads == q.shape[1] * kv_heads,
          g, op, "gla: heads do not divide");
  require(
      input_tensor(g, op, at::gate).shape == k.shape && q.shape[0] == k.shape[0] && q.shape[0] == v.shape[0],
      g, op, "gla: shapes");
  require(input_tensor(g, op, at::gate).dtype == q.dtype && k.dtype == q.dtype && v.dtype == q.dtype, g, op,
          "gla: types");
}

Shape output_shape(const Graph& g, const Op& op) {
  using at = operand::gla;
  const Tensor& v = input_tensor(g, op, at::v);
  return {v.shape[0], v.shape[1] / op.attr_int("kv_heads") * op.attr_int("heads")};
}

// `at`: operand::gla, or that of its gradient.
template <class at>
void require_parents(const Graph& g, const Op& op) {
  require(!op.has_input(at::parents) ||
              input_tensor(g, op, at::parents).shape[0] + 1 == input_tensor(g, op, at::seq_starts).shape[0],
          g, op, "gla: a parent for each segment");
}

// q [T, N*Dk], k [T, K*Dk], v [T, K*Dv], gate [T, K*Dk], seq_starts [B+1], step, parents [B]? -> o [T, N*Dv]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::gla;
  require_shapes(g, op);
  require_parents<operand::gla>(g, op);
  return {{"", output_shape(g, op), input_tensor(g, op, at::q).dtype}};
}

// q, k, v, gate, d_o, seq_starts, step, parents? -> d_q, d_k, d_v, d_gate
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::gla_grad;
  require_shapes(g, op);
  require_parents<operand::gla_grad>(g, op);
  require(input_tensor(g, op, at::d_o).shape == output_shape(g, op), g, op, "gla_grad: d_o");
  const Tensor& q = input_tensor(g, op, at::q);
  const Tensor& k = input_tensor(g, op, at::k);
  const Tensor& v = input_tensor(g, op, at::v);
  return {{".q", q.shape, q.dtype},
          {".k", k.shape, k.dtype},
          {".v", v.shape, v.dtype},
          {".gate", k.shape, k.dtype}};
}

// q, k, v, gate, step -> o, state f32 [K*Dk, Dv], which is read and updated in place
std::vector<OutputSpec> infer_cached(const Graph& g, const Op& op) {
  using at = operand::gla_cached;
  require_shapes(g, op);
  const int64_t kv_heads = op.attr_int("kv_heads");
  return {{"", output_shape(g, op), input_tensor(g, op, at::q).dtype},
          {".state",
           {input_tensor(g, op, at::k).shape[1], input_tensor(g, op, at::v).shape[1] / kv_heads},
           DType::f32}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::gla;
  bool wanted = false;
  for (size_t i = 0; i < 4; ++i) wanted = wanted || ctx.wants(op.inputs[i]);
  if (!wanted) return;
  Operands inputs{op.inputs[at::q], op.inputs[at::k], op.inputs[at::v], op.inputs[at::gate],
                  ctx.gradient_of(op.outputs[at::o])};
  for (size_t i = at::seq_starts; i < op.inputs.size(); ++i) inputs.push_back(op.inputs[i]);
  const auto out = ctx.emit(OpKind::gla_grad, std::move(inputs), op.attrs,
                            {kNewTensor, kNewTensor, kNewTensor, kNewTensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::o]).name);
  for (size_t i = 0; i < 4; ++i)
    if (ctx.wants(op.inputs[i])) ctx.add_gradient(op.inputs[i], out[i]);
}

// Products of matrices per query head and chunk: with states [C, Dk, Dv], scores [C, C, Dk], values [C, C,
// Dv].
struct Products {
  double states, scores, values;
};

Cost cost_of_products(const Graph& g, const Op& op, const Products& per_query, double states_per_key) {
  const GlaShape s = gla_shape(g, op);
  const auto real = [](int64_t x) { return static_cast<double>(x); };
  const double state = real(s.key_dim * s.value_dim);
  const double half = real(kGlaChunk) / 2;  // the triangle
  const double per_token =
      real(s.heads) * (per_query.states * state +
                       half * (per_query.scores * real(s.key_dim) + per_query.values * real(s.value_dim))) +
      real(s.kv_heads) * states_per_key * state;
  Cost cost{2 * real(s.tokens) * per_token, 0};
  for (const TensorId id : op.inputs) cost.bytes += real(g.tensor(id).bytes());
  for (const TensorId id : op.outputs)
    if (id != kNoTensor) cost.bytes += real(g.tensor(id).bytes());
  return cost;
}

Cost cost(const Graph& g, const Op& op) { return cost_of_products(g, op, {1, 1, 1}, 1); }
Cost cost_grad(const Graph& g, const Op& op) { return cost_of_products(g, op, {2, 3, 2}, 4); }

// By its own curve, over the tokens; without one as products of chunks of rows with a state, of which there
// are as many FLOPs.
template <Cost (*Costs)(const Graph&, const Op&)>
Work work(const Graph& g, const Op& op) {
  using at = operand::gla;
  const GlaShape s = gla_shape(g, op);
  const double all = Costs(g, op).flops;
  const MatmulShape product{kGlaChunk, s.value_dim, s.key_dim};
  const double flops = 2.0 * static_cast<double>(kGlaChunk * s.value_dim * s.key_dim);
  const auto chunks = static_cast<int64_t>(all / flops) + 1;
  return {.products = {{product}},
          .rows = chunks * kGlaChunk,
          .rows_at_a_time = kGlaChunk,
          .amount = all,
          .at = static_cast<double>(s.tokens),
          .dtype = input_tensor(g, op, at::q).dtype,
          .arithmetic = true,
          .all_by_curve = true};
}

int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return gla_forward_scratch_bytes(gla_shape(g, op), device.threads);
}
int64_t scratch_grad(const Graph& g, const Op& op, const DeviceDescription& device) {
  return gla_backward_scratch_bytes(gla_shape(g, op), device.threads);
}

// On GPUs: what the chunks' kernels hand to one another.
int64_t gpu_scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::gla;
  return gla_gpu_scratch(gla_shape(g, op), size_of(input_tensor(g, op, at::q).dtype)).forward_bytes;
}
int64_t gpu_scratch_grad(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::gla;
  return gla_gpu_scratch(gla_shape(g, op), size_of(input_tensor(g, op, at::q).dtype)).backward_bytes;
}

// On GPUs: padding, three kernels that make the chunks and one for outputs; backwards padding of four
// gradients, the same three and five more.
int64_t launches(const Graph&, const Op&, bool) { return 5; }
int64_t launches_grad(const Graph&, const Op&, bool) { return 12; }
int64_t launches_cached(const Graph&, const Op& op, bool) { return op.scratch == kNoTensor ? 1 : 2; }

int64_t gpu_scratch_cached(const Graph& g, const Op& op, const DeviceDescription&) {
  return gla_gpu_cached_scratch_bytes(gla_shape(g, op));
}

}  // namespace

bool gla_has_parents(const Op& op) {
  return (op.kind == OpKind::gla && op.has_input(operand::gla::parents)) ||
         (op.kind == OpKind::gla_grad && op.has_input(operand::gla_grad::parents));
}

GlaShape gla_shape(const Graph& g, const Op& op) {
  using at = operand::gla;
  const Tensor& q = input_tensor(g, op, at::q);
  const int64_t heads = op.attr_int("heads");
  const int64_t kv_heads = op.attr_int("kv_heads");
  int64_t sequences = 1;
  if (op.kind == OpKind::gla) sequences = input_tensor(g, op, at::seq_starts).shape[0] - 1;
  if (op.kind == OpKind::gla_grad)
    sequences = input_tensor(g, op, operand::gla_grad::seq_starts).shape[0] - 1;
  // Each segment that forks has two children at least, and is numbered by the second (ops/segments.h).
  const int64_t forks = gla_has_parents(op) ? sequences / 2 : 0;
  return {.tokens = q.shape[0],
          .sequences = sequences,
          .heads = heads,
          .kv_heads = kv_heads,
          .key_dim = q.shape[1] / heads,
          .value_dim = input_tensor(g, op, at::v).shape[1] / kv_heads,
          .trees = gla_has_parents(op),
          .forks = forks};
}

const OpRule gla_rule{.kind = OpKind::gla,
                      .infer = infer,
                      .gradient = gradient,
                      .cost = cost,
                      .work = work<cost>,
                      .scratch_bytes = scratch,
                      .gpu_scratch_bytes = gpu_scratch,
                      .launches = launches,
                      .shortens = Shortens::rows,
                      .recompute = RecomputeClass::mixer};
const OpRule gla_grad_rule{.kind = OpKind::gla_grad,
                           .infer = infer_grad,
                           .cost = cost_grad,
                           .work = work<cost_grad>,
                           .scratch_bytes = scratch_grad,
                           .gpu_scratch_bytes = gpu_scratch_grad,
                           .launches = launches_grad,
                           .shortens = Shortens::rows};
const OpRule gla_cached_rule{.kind = OpKind::gla_cached,
                             .infer = infer_cached,
                             .scratch_bytes = scratch,
                             .gpu_scratch_bytes = gpu_scratch_cached,
                             .launches = launches_cached,
                             .recompute = RecomputeClass::mixer};

}  // namespace plimsoll
