// attention: softmax(scale * q k^T + bias) v within each sequence of the flat token axis, flash style: no
// score tensor. Saved for the gradient: q, k, v, o and the log-sum-exp of each row. Grouped heads (N query, K
// key/value). Attributes; those behind the third only where they differ from what decoders have:
//   head_dim, length (longest sequence planned for), window (keys a query sees, itself included; 0: no limit; without
//   `causal` as many on each side)
//   causal        0: a query sees the keys behind it too
//   scale         instead of 1 / sqrt(D)
//   softcap       logits a become softcap * tanh(a / softcap), before what is not seen is hidden; without a bias
//                 or dropout
//   keys_of       the axis of k and v where it is another one; with key_starts, and key_length, the longest
//                 sequence of keys. Sequence s of the queries sees all keys of sequence s there
//   max_distance  with bias_table: T5's bias over bucketed distances (ops/attention/attention_bias.h)
//   dropout       of the probabilities, with samples and positions; drawn as
//   ops/attention/attention_kernels.h says
// With `parents` sequences are segments of trees (rows that begin with the same tokens): each sees its
// ancestors as though they stood before it, `length` is of the longest path from a root, and it is causal,
// with no more than a window. attention_cached: the same for generation. Keys and values are appended to a
// cache, whose first `capacity` rows are those of the sequence; or, with `keys_of`, k and v are caches that
// were filled before (by the linears that make them), of which the live rows of that axis are seen by every
// query. With `apart` row r of q, k and v is the next token of sequence r, all of one length so far, whose
// rows of the cache begin at r * capacity.
#include <cmath>
#include <string_view>

#include "graph/op_kind.h"
#include "ops/attention/attention_cached_split.h"
#include "ops/attention/attention_shape.h"
#include "ops/name_hash.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// q, k and v, which all attentions have in these places.
using qkv = operand::attention;
static_assert(size_t{operand::attention_grad::v} == qkv::v && size_t{operand::attention_cached::v} == qkv::v);

int64_t int_or(const Op& op, const char* name, int64_t otherwise) {
  return op.attrs.contains(name) ? op.attr_int(name) : otherwise;
}
bool is_causal(const Op& op) { return int_or(op, "causal", 1) != 0; }

size_t bias_input(const Op& op) {
  if (op.kind == OpKind::attention_cached) return operand::attention_cached::bias_table;
  if (op.kind == OpKind::attention_grad) return operand::attention_grad::bias_table;
  return operand::attention::bias_table;
}

// A query sees half of the keys where those behind it are masked; a window cuts them further.
double score_pairs(const Graph& g, const Op& op) {
  const auto tokens = static_cast<double>(input_tensor(g, op, qkv::q).shape[0]);
  if (!is_causal(op)) {
    const int64_t keys = int_or(op, "key_length", op.attr_int("length")), window = op.attr_int("window");
    return tokens * static_cast<double>(window > 0 ? std::min(keys, 2 * window - 1) : keys);
  }
  double reach = static_cast<double>(op.attr_int("length")) / 2.0;
  const auto window = static_cast<double>(op.attr_int("window"));
  if (window > 0 && window < reach) reach = window;
  return tokens * reach;
}

Cost attention_cost(const Graph& g, const Op& op, double products) {
  Cost cost{2.0 * products * score_pairs(g, op) * static_cast<double>(input_tensor(g, op, qkv::q).shape[1]),
            0};
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const TensorId id : *ids)
      if (id != kNoTensor) cost.bytes += static_cast<double>(g.tensor(id).bytes());
  return cost;
}

void require_heads(const Graph& g, const Op& op) {
  const Tensor& q = input_tensor(g, op, qkv::q);
  const Tensor& k = input_tensor(g, op, qkv::k);
  const int64_t head = op.attr_int("head_dim");
  require(q.shape[1] % head == 0 && k.shape[1] % head == 0 && q.shape[1] % k.shape[1] == 0, g, op,
          "attention: heads do not divide");
  require(k.shape == input_tensor(g, op, qkv::v).shape, g, op, "attention: shapes of k and v");
  require(op.attr_int("window") == 0 || is_causal(op) || !op.attrs.contains("keys_of"), g, op,
          "attention: a window of both sides is over keys of the same axis");
  require(!op.attrs.contains("keys_of") || !is_causal(op), g, op,
          "attention: keys of another axis have no order with the queries");
  require(!op.attrs.contains("scale") || op.attr_float("scale") > 0, g, op, "attention: a scale above 0");
  require(!op.attrs.contains("softcap") || op.attr_float("softcap") > 0, g, op, "attention: a cap above 0");
  require(!op.attrs.contains("softcap") || (!op.has_input(bias_input(op)) && !op.attrs.contains("dropout")),
          g, op, "attention: a cap has neither bias nor dropout beside it");
}

void require_bias(const Graph& g, const Op& op) {
  const size_t at = bias_input(op);
  require(op.has_input(at) == op.attrs.contains("max_distance"), g, op,
          "attention: a table of biases and max_distance belong together");
  if (!op.has_input(at)) return;
  const Tensor& q = input_tensor(g, op, qkv::q);
  const Tensor& table = input_tensor(g, op, at);
  const int64_t side = is_causal(op) ? table.shape[0] : table.shape[0] / 2;
  require(table.shape.rank() == 2 && table.shape[1] * op.attr_int("head_dim") == q.shape[1] &&
              table.dtype == q.dtype,
          g, op, "attention: a bias for each bucket and head, of the type of q");
  require(side >= 2 && op.attr_int("max_distance") > side / 2, g, op, "attention: buckets of distances");
  require(!op.attrs.contains("keys_of"), g, op, "attention: no bias over keys of another axis");
}

// `at`: operand::attention, or that of its gradient.
template <class at>
void require_dropout(const Graph& g, const Op& op) {
  const bool drops = op.attrs.contains("dropout");
  require(op.has_input(at::samples) == drops && op.has_input(at::positions) == drops, g, op,
          "attention: dropout, samples and positions belong together");
  if (!drops) return;
  const Shape rows{input_tensor(g, op, qkv::q).shape[0]};
  require(input_tensor(g, op, at::samples).shape == rows && input_tensor(g, op, at::positions).shape == rows,
          g, op, "attention: a sample and a position for each query");
  const double p = op.attr_float("dropout");
  require(p >= 0.0 && p < 1.0, g, op, "attention: dropout from 0 to below 1");
}

template <class at>
void require_shapes(const Graph& g, const Op& op) {
  require_heads(g, op);
  const bool crosses = op.attrs.contains("keys_of");
  require(op.has_input(at::key_starts) == crosses && op.attrs.contains("key_length") == crosses, g, op,
          "attention: key_starts, keys_of and key_length belong together");
  if (crosses)
    require(input_tensor(g, op, at::key_starts).shape == input_tensor(g, op, at::seq_starts).shape, g, op,
            "attention: as many sequences of keys as of queries");
  else
    require(input_tensor(g, op, qkv::q).shape[0] == input_tensor(g, op, qkv::k).shape[0], g, op,
            "attention: rows");
  require_bias(g, op);
  require_dropout<at>(g, op);
  if (!op.has_input(at::parents)) return;
  require(input_tensor(g, op, at::parents).shape[0] + 1 == input_tensor(g, op, at::seq_starts).shape[0], g,
          op, "attention: a parent for each segment");
  require(is_causal(op) && !op.has_input(bias_input(op)) && !op.attrs.contains("dropout"), g, op,
          "attention: trees of segments are for causal attention without bias or dropout");
}

// q [Tq, N*D], k [Tk, K*D], v [Tk, K*D], seq_starts [B+1], step, key_starts [B+1]?, bias_table [buckets, N]?,
// samples [Tq]?, positions [Tq]?, parents [B]? -> o like q, lse f32 [Tq, N]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  require_shapes<operand::attention>(g, op);
  const Tensor& q = input_tensor(g, op, qkv::q);
  return {{"", q.shape, q.dtype}, {".lse", {q.shape[0], q.shape[1] / op.attr_int("head_dim")}, DType::f32}};
}

// q, k, v, o, lse, d_o, seq_starts, step, key_starts?, bias_table?, samples?, positions?, parents? -> d_q,
// d_k, d_v, and with a bias its table's gradient, which is absent where the table is frozen.
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  require_shapes<operand::attention_grad>(g, op);
  const Tensor& q = input_tensor(g, op, qkv::q);
  const Tensor& k = input_tensor(g, op, qkv::k);
  std::vector<OutputSpec> outputs{
      {".q", q.shape, q.dtype}, {".k", k.shape, k.dtype}, {".v", k.shape, k.dtype}};
  if (op.has_input(bias_input(op)))
    outputs.push_back({".bias_grad", input_tensor(g, op, bias_input(op)).shape,
                       gradient_dtype(g, op, operand::attention_grad::d_bias_table)});
  return outputs;
}

// q [T, N*D], k, v [T, K*D], step, bias_table? -> o like q; k_cache, v_cache [C, K*D], or of several
// sequences [W*C, K*D], are extended in place. With keys_of: q [T, N*D], k, v [C, K*D], step -> o.
std::vector<OutputSpec> infer_cached(const Graph& g, const Op& op) {
  require_heads(g, op);
  require_bias(g, op);
  const Tensor& q = input_tensor(g, op, qkv::q);
  const Tensor& k = input_tensor(g, op, qkv::k);
  if (op.attrs.contains("keys_of")) return {{"", q.shape, q.dtype}};
  require(is_causal(op), g, op, "attention_cached: what is appended comes behind what is there");
  require(!op.attrs.contains("dropout"), g, op, "attention_cached: no dropout over a cache");
  int64_t sequences = int_or(op, "apart", 0) != 0 ? q.shape[0] : 1;
  using at = operand::attention_cached;
  if (op.has_output(at::k_cache) && op.outputs[at::k_cache] != kNewTensor)
    sequences = std::max(sequences, g.tensor(op.outputs[at::k_cache]).shape[0] / op.attr_int("capacity"));
  const Shape cache{sequences * op.attr_int("capacity"), k.shape[1]};
  return {{"", q.shape, q.dtype}, {".k_cache", cache, k.dtype}, {".v_cache", cache, k.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::attention;
  const TensorId table = op.input(at::bias_table);
  const bool table_trains = ctx.wants(table);
  if (!ctx.wants(op.inputs[at::q]) && !ctx.wants(op.inputs[at::k]) && !ctx.wants(op.inputs[at::v]) &&
      !table_trains)
    return;
  Operands inputs{op.inputs[at::q],  op.inputs[at::k],    op.inputs[at::v],
                  op.outputs[at::o], op.outputs[at::lse], ctx.gradient_of(op.outputs[at::o])};
  for (size_t i = at::seq_starts; i < op.inputs.size(); ++i) inputs.push_back(op.inputs[i]);
  Operands outputs{kNewTensor, kNewTensor, kNewTensor};
  Attrs attrs = op.attrs;
  if (table != kNoTensor) outputs.push_back(kNoTensor);
  if (table_trains) {
    const auto target = ctx.weight_gradient(table);
    outputs[operand::attention_grad::d_bias_table] = target.tensor;
    attrs["accumulate"] = target.accumulate;
  }
  const auto out = ctx.emit(OpKind::attention_grad, std::move(inputs), std::move(attrs), std::move(outputs),
                            "d_" + ctx.graph().tensor(op.outputs[at::o]).name);
  for (const size_t i : {at::q, at::k, at::v})
    if (ctx.wants(op.inputs[i])) ctx.add_gradient(op.inputs[i], out[i]);
}

}  // namespace

bool has_parents(const Op& op) {
  return op.kind == OpKind::attention_grad ? op.has_input(operand::attention_grad::parents)
                                           : op.has_input(operand::attention::parents);
}

float attention_scale(const Op& op) {
  if (op.attrs.contains("scale")) return static_cast<float>(op.attr_float("scale"));
  return 1.0F / std::sqrt(static_cast<float>(op.attr_int("head_dim")));
}
float attention_softcap(const Op& op) {
  return op.attrs.contains("softcap") ? static_cast<float>(op.attr_float("softcap")) : 0.0F;
}
uint64_t attention_dropout_key(const Op& op) { return name_hash(".probabilities", name_hash(op.scope)); }

AttentionShape attention_shape(const Graph& g, const Op& op) {
  const Tensor& q = input_tensor(g, op, qkv::q);
  const int64_t head = op.attr_int("head_dim");
  AttentionShape shape{.length = op.attr_int("length"),
                       .heads = q.shape[1] / head,
                       .kv_heads = input_tensor(g, op, qkv::k).shape[1] / head,
                       .head_dim = head,
                       .causal = is_causal(op)};
  if (op.kind != OpKind::attention_cached && has_parents(op)) shape.tree_tokens = q.shape[0];
  if (!op.has_input(bias_input(op))) return shape;
  shape.buckets = input_tensor(g, op, bias_input(op)).shape[0];
  shape.max_distance = op.attr_int("max_distance");
  shape.bias_trains =
      op.kind == OpKind::attention_grad && op.has_output(operand::attention_grad::d_bias_table);
  if (shape.bias_trains)
    shape.sequences = input_tensor(g, op, operand::attention_grad::seq_starts).shape[0] - 1;
  return shape;
}

bool attention_fits_tiles(const Graph& g, const Op& op) {
  constexpr int64_t kMostBiases = 1100;  // f32 values of a group's heads in a block's memory
  const AttentionShape shape = attention_shape(g, op);
  const int64_t biases = shape.buckets == 0 ? 0 : shape.heads / shape.kv_heads * (2 * shape.max_distance + 1);
  const bool parents = op.kind != OpKind::attention_cached && has_parents(op);
  const bool plain = !parents && shape.buckets == 0 && !op.attrs.contains("dropout");
  return size_of(input_tensor(g, op, qkv::q).dtype) == 2 && shape.head_dim <= (plain ? 256 : 128) &&
         shape.head_dim % 8 == 0 && biases <= kMostBiases && (plain || !op.attrs.contains("softcap"));
}
int64_t attention_tile_sums(const AttentionShape& shape) {
  return shape.sequences * shape.heads * ((shape.length + kGpuAttentionTile - 1) / kGpuAttentionTile) *
         shape.buckets;
}

CachedSplit cached_split(const Graph& g, const Op& op) {
  // Rows of the cache that a sequence has.
  const int64_t keys =
      op.attrs.contains("keys_of") ? input_tensor(g, op, qkv::k).shape[0] : op.attr_int("capacity");
  return cached_split(attention_shape(g, op), input_tensor(g, op, qkv::q).shape[0],
                      int_or(op, "apart", 0) != 0, keys);
}

int64_t attention_bias_sums_bytes(const AttentionShape& shape) {
  return shape.bias_trains ? 4 * shape.buckets * shape.heads : 0;
}

namespace {

int64_t scratch(const Graph& g, const Op& op, const DeviceDescription& device) {
  return attention_forward_scratch_bytes(attention_shape(g, op), device.threads);
}
int64_t scratch_grad(const Graph& g, const Op& op, const DeviceDescription& device) {
  const AttentionShape shape = attention_shape(g, op);
  return attention_backward_scratch_bytes(shape, device.threads) + attention_bias_sums_bytes(shape);
}

// On GPUs: sum(d_o * o) of each row and head, sums of the gradient of a bias, and of trees in a window their
// tokens' numbers.
int64_t gpu_scratch_grad(const Graph& g, const Op& op, const DeviceDescription&) {
  const AttentionShape shape = attention_shape(g, op);
  int64_t values = shape.heads * input_tensor(g, op, qkv::q).shape[0];
  if (shape.bias_trains) values += attention_tile_sums(shape);
  if (has_parents(op) && op.attr_int("window") > 0) values += input_tensor(g, op, qkv::q).shape[0];
  return values * int64_t{sizeof(float)};
}

// On GPUs: of each part of the keys the unfinished outputs, their largest logits and sums.
int64_t gpu_scratch_cached(const Graph& g, const Op& op, const DeviceDescription&) {
  const int64_t parts = cached_split(g, op).parts;
  if (parts == 1) return 0;
  const Tensor& q = input_tensor(g, op, qkv::q);
  const int64_t heads = q.shape[1] / op.attr_int("head_dim");
  return parts * q.shape[0] * (q.shape[1] + 2 * heads) * int64_t{sizeof(float)};
}

// Launches on GPUs. o, lse and their padding.
int64_t launches(const Graph&, const Op&, bool) { return 3; }
// Sums of d_o * o, the padding of three gradients, and two kernels; that of a bias, and of trees in a window
// their tokens' numbers.
int64_t launches_grad(const Graph&, const Op& op, bool) {
  const bool numbers = has_parents(op) && op.attr_int("window") > 0;
  return 4 + 2 + (op.has_output(operand::attention_grad::d_bias_table) ? 1 : 0) + (numbers ? 1 : 0);
}
// Kernels that append, that compute what is seen, and that put its parts together.
int64_t launches_cached(const Graph& g, const Op& op, bool) {
  return (op.attrs.contains("keys_of") ? 0 : 1) + 1 + (cached_split(g, op).parts > 1 ? 1 : 0);
}

Cost cost(const Graph& g, const Op& op) { return attention_cost(g, op, 2.0); }
Cost cost_grad(const Graph& g, const Op& op) { return attention_cost(g, op, 5.0); }
// The curve of 16-bit values, for which GPUs have more than one kernel.
std::string_view curve_of(const Graph& g, const Op& op) {
  const bool backward = op.kind == OpKind::attention_grad;
  if (size_of(input_tensor(g, op, qkv::q).dtype) != 2) return {};
  if (!attention_fits_tiles(g, op)) return backward ? "attention_grad_plain" : "attention_plain";
  if (op.attrs.contains("dropout"))
    return backward ? "attention_grad_with_dropout" : "attention_with_dropout";
  if (op.has_input(bias_input(op))) return backward ? "attention_grad_with_bias" : "attention_with_bias";
  return {};
}
template <Cost (*Costs)(const Graph&, const Op&)>
Work work(const Graph& g, const Op& op) {
  return {.products = {},
          .amount = Costs(g, op).flops,
          .at = static_cast<double>(op.attr_int("length")),
          .dtype = input_tensor(g, op, qkv::q).dtype,
          .head_dim = op.attr_int("head_dim"),
          .arithmetic = true,
          .curve = curve_of(g, op)};
}
Cost cost_cached(const Graph& g, const Op& op) {
  Cost total;
  if (op.attrs.contains("keys_of"))
    for (const size_t i : {qkv::k, qkv::v})
      total.bytes += static_cast<double>(input_tensor(g, op, i).bytes());
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
                            .other_axis = {.attribute = "keys_of", .inputs = {qkv::k, qkv::v}},
                            .launches = launches,
                            .shortens = Shortens::pairs,
                            .recompute = RecomputeClass::mixer};
const OpRule attention_grad_rule{
    .kind = OpKind::attention_grad,
    .infer = infer_grad,
    .cost = cost_grad,
    .work = work<cost_grad>,
    .scratch_bytes = scratch_grad,
    .gpu_scratch_bytes = gpu_scratch_grad,
    .other_axis = {.attribute = "keys_of",
                   .inputs = {qkv::k, qkv::v},
                   .outputs = {operand::attention_grad::d_k, operand::attention_grad::d_v}},
    .launches = launches_grad,
    .updates = true,
    .shortens = Shortens::pairs};
const OpRule attention_cached_rule{.kind = OpKind::attention_cached,
                                   .infer = infer_cached,
                                   .cost = cost_cached,
                                   .scratch_bytes = scratch,
                                   .gpu_scratch_bytes = gpu_scratch_cached,
                                   .other_axis = {.attribute = "keys_of", .inputs = {qkv::k, qkv::v}},
                                   .launches = launches_cached,
                                   .recompute = RecomputeClass::mixer};

}  // namespace plimsoll
