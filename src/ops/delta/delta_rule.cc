// delta_rule: the gated delta rule within each sequence of the flat token axis. A value head's state S
// [Dk, Dv] decays by one factor per token, forgets what it holds for the token's key, and takes its value in:
//   S <- e^g S,  u = beta (v - S^T k),  S <- S + k u^T,  o = S^T q,
// where q and k are divided by their lengths (eps inside the root), and q by sqrt(Dk) too.
// Attributes: heads Hv (of v, g, beta and o), key_heads Hk (of q and k; value head j reads key head
// j / (Hv / Hk)), eps; chunks_at_once: of one sequence on a GPU, where the shape does not decide
// (ops/delta/delta_rule_gpu_scratch.h). Bits do not depend on it.
// Nothing but the inputs is saved for the gradient, which makes the states again.
// With `parents` sequences are segments of trees (rows that begin with the same tokens), and a segment's
// first state is its parent's last. delta_rule_cached: the same for generation, going on from a state that is
// updated in place; a sequence that begins (kv_length 0) finds it zero. Attributes: sequences, how many have a state, 1
// if absent; apart: each row continues a sequence of its own, else all rows continue the first.
#include "graph/op_kind.h"
#include "ops/cached_sequences.h"
#include "ops/delta/delta_rule_gpu_scratch.h"
#include "ops/delta/delta_rule_shape.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

void require_shapes(const Graph& g, const Op& op) {
  using at = operand::delta_rule;
  const Tensor& q = input_tensor(g, op, at::q);
  const Tensor& k = input_tensor(g, op, at::k);
  const Tensor& v = input_tensor(g, op, at::v);
  const int64_t heads = op.attr_int("heads");
  const int64_t key_heads = op.attr_int("key_heads");
  require(heads > 0 && key_heads > 0 && heads % key_heads == 0 && q.shape[1] % key_heads == 0 &&
              v.shape[1] % heads == 0,
          g, op, "delta_rule: heads do not divide");
  require(q.shape == k.shape && q.shape[0] == v.shape[0], g, op, "delta_rule: shapes");
  require(k.dtype == q.dtype && v.dtype == q.dtype, g, op, "delta_rule: types");
  for (const size_t i : {at::g, at::beta}) {
    const Tensor& gate = g.tensor(op.inputs[i]);
    require(gate.shape == Shape{q.shape[0], heads} && gate.dtype == DType::f32, g, op, "delta_rule: gates");
  }
}

// `at`: operand::delta_rule, or that of its gradient.
template <class at>
void require_parents(const Graph& g, const Op& op) {
  require(!op.has_input(at::parents) ||
              input_tensor(g, op, at::parents).shape[0] + 1 == input_tensor(g, op, at::seq_starts).shape[0],
          g, op, "delta_rule: a parent for each segment");
}

// -> o like v
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::delta_rule;
  require_shapes(g, op);
  require_parents<at>(g, op);
  return {{"", input_tensor(g, op, at::v).shape, input_tensor(g, op, at::q).dtype}};
}

// -> d_q, d_k, d_v, and f32 d_g, d_beta
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::delta_rule_grad;
  require_shapes(g, op);
  require_parents<at>(g, op);
  const Tensor& q = input_tensor(g, op, at::q);
  const Tensor& v = input_tensor(g, op, at::v);
  const Shape& gate = input_tensor(g, op, at::g).shape;
  require(input_tensor(g, op, at::d_o).shape == v.shape, g, op, "delta_rule_grad: d_o");
  return {{".q", q.shape, q.dtype},
          {".k", q.shape, q.dtype},
          {".v", v.shape, v.dtype},
          {".g", gate, DType::f32},
          {".beta", gate, DType::f32}};
}

// -> o, state f32 [sequences*Hv*Dk, Dv], which is read and updated in place
std::vector<OutputSpec> infer_cached(const Graph& g, const Op& op) {
  using at = operand::delta_rule_cached;
  require_shapes(g, op);
  const DeltaShape s = delta_shape(g, op);
  require(!continues_apart(op) || s.tokens <= cached_sequences(op), g, op, "delta_rule_cached: sequences");
  return {{"", input_tensor(g, op, at::v).shape, input_tensor(g, op, at::q).dtype},
          {".state", {cached_sequences(op) * s.heads * s.key_dim, s.value_dim}, DType::f32}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::delta_rule;
  constexpr size_t kDifferentiable = at::beta + 1;
  bool wanted = false;
  for (size_t i = 0; i < kDifferentiable; ++i) wanted = wanted || ctx.wants(op.inputs[i]);
  if (!wanted) return;
  Operands inputs;
  for (size_t i = 0; i < kDifferentiable; ++i) inputs.push_back(op.inputs[i]);
  inputs.push_back(ctx.gradient_of(op.outputs[at::o]));
  for (size_t i = at::seq_starts; i < op.inputs.size(); ++i) inputs.push_back(op.inputs[i]);
  const auto out = ctx.emit(OpKind::delta_rule_grad, std::move(inputs), op.attrs,
                            {kNewTensor, kNewTensor, kNewTensor, kNewTensor, kNewTensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::o]).name);
  for (size_t i = 0; i < kDifferentiable; ++i)
    if (ctx.wants(op.inputs[i])) ctx.add_gradient(op.inputs[i], out[i]);
}

// Products of matrices per value head and chunk, as shares of [C, Dk, Dv], of [C, C, Dk] and of [C, C, Dv];
// the last two are of triangles.
struct Products {
  double states, keys, values;
};

Cost cost_of_products(const Graph& g, const Op& op, const Products& products) {
  const DeltaShape s = delta_shape(g, op);
  const auto real = [](int64_t x) { return static_cast<double>(x); };
  const double half = real(kDeltaChunk) / 2;  // the triangle
  const double per_token = products.states * real(s.key_dim * s.value_dim) +
                           half * (products.keys * real(s.key_dim) + products.values * real(s.value_dim));
  Cost cost{2 * real(s.tokens * s.heads) * per_token, 0};
  for (const TensorId id : op.inputs)
    if (id != kNoTensor) cost.bytes += real(g.tensor(id).bytes());
  for (const TensorId id : op.outputs)
    if (id != kNoTensor) cost.bytes += real(g.tensor(id).bytes());
  return cost;
}

Cost cost(const Graph& g, const Op& op) { return cost_of_products(g, op, {3, 2, 2}); }
Cost cost_grad(const Graph& g, const Op& op) { return cost_of_products(g, op, {10, 7, 6}); }

// By its own curve, over the tokens; without one as products of chunks of rows with a state, of which there
// are as many FLOPs.
template <Cost (*Costs)(const Graph&, const Op&)>
Work work(const Graph& g, const Op& op) {
  using at = operand::delta_rule;
  const DeltaShape s = delta_shape(g, op);
  const double all = Costs(g, op).flops;
  const MatmulShape product{kDeltaChunk, s.value_dim, s.key_dim};
  const double flops = 2.0 * static_cast<double>(kDeltaChunk * s.value_dim * s.key_dim);
  const auto chunks = static_cast<int64_t>(all / flops) + 1;
  return {.products = {{product}},
          .rows = chunks * kDeltaChunk,
          .rows_at_a_time = kDeltaChunk,
          .amount = all,
          .at = static_cast<double>(s.tokens),
          .dtype = input_tensor(g, op, at::q).dtype,
          .arithmetic = true,
          .all_by_curve = true};
}

int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return delta_forward_scratch_bytes(delta_shape(g, op), device.threads);
}
int64_t scratch_grad(const Graph& g, const Op& op, const DeviceDescription& device) {
  return delta_backward_scratch_bytes(delta_shape(g, op), device.threads);
}

// On GPUs: what the chunks' kernels hand to one another.
int64_t gpu_scratch(const Graph& g, const Op& op, const DeviceDescription&) {
  return delta_gpu_forward(delta_shape(g, op)).bytes;
}
int64_t gpu_scratch_grad(const Graph& g, const Op& op, const DeviceDescription&) {
  return delta_gpu_backward(delta_shape(g, op)).bytes;
}

// On GPUs: padding, unit rows, and for each stretch chunks, states and outputs; backwards padding of five gradients,
// unit rows, chunks and states of all stretches but the last, and for each the same two, the walk back, and four more.
int64_t launches(const Graph& g, const Op& op, bool) {
  return 2 + 3 * delta_gpu_stretches(delta_shape(g, op));
}
int64_t launches_grad(const Graph& g, const Op& op, bool) {
  return 4 + 9 * delta_gpu_stretches(delta_shape(g, op));
}

bool has_parents(const Op& op) {
  return (op.kind == OpKind::delta_rule && op.has_input(operand::delta_rule::parents)) ||
         (op.kind == OpKind::delta_rule_grad && op.has_input(operand::delta_rule_grad::parents));
}

}  // namespace

DeltaShape delta_shape(const Graph& g, const Op& op) {
  using at = operand::delta_rule;
  const Tensor& q = input_tensor(g, op, at::q);
  const int64_t heads = op.attr_int("heads");
  const int64_t key_heads = op.attr_int("key_heads");
  int64_t sequences = 1;
  if (op.kind == OpKind::delta_rule) sequences = input_tensor(g, op, at::seq_starts).shape[0] - 1;
  if (op.kind == OpKind::delta_rule_grad)
    sequences = input_tensor(g, op, operand::delta_rule_grad::seq_starts).shape[0] - 1;
  // Each segment that forks has two children at least, and is numbered by the second (ops/segments.h).
  const int64_t forks = has_parents(op) ? sequences / 2 : 0;
  return {.tokens = q.shape[0],
          .sequences = sequences,
          .heads = heads,
          .key_heads = key_heads,
          .key_dim = q.shape[1] / key_heads,
          .value_dim = input_tensor(g, op, at::v).shape[1] / heads,
          .trees = has_parents(op),
          .forks = forks,
          .chunks_at_once = op.attrs.contains("chunks_at_once") ? op.attr_int("chunks_at_once") : 0};
}

const OpRule delta_rule_rule{.kind = OpKind::delta_rule,
                             .infer = infer,
                             .gradient = gradient,
                             .cost = cost,
                             .work = work<cost>,
                             .scratch_bytes = scratch,
                             .gpu_scratch_bytes = gpu_scratch,
                             .launches = launches,
                             .shortens = Shortens::rows,
                             .recompute = RecomputeClass::mixer};
const OpRule delta_rule_grad_rule{.kind = OpKind::delta_rule_grad,
                                  .infer = infer_grad,
                                  .cost = cost_grad,
                                  .work = work<cost_grad>,
                                  .scratch_bytes = scratch_grad,
                                  .gpu_scratch_bytes = gpu_scratch_grad,
                                  .launches = launches_grad,
                                  .shortens = Shortens::rows};
const OpRule delta_rule_cached_rule{.kind = OpKind::delta_rule_cached,
                                    .infer = infer_cached,
                                    .scratch_bytes = scratch,
                                    .recompute = RecomputeClass::mixer};

}  // namespace plimsoll
