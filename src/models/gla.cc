// Gated linear attention (flash-linear-attention's GLA): a state of constant size per head instead of keys
// and values, decays by a low-rank gate, a norm per head with a swish gate. No positions are encoded.
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "models/family.h"
#include "ops/scan/short_conv_kernels.h"

namespace plimsoll {
namespace {

constexpr int64_t kGateRank = 16;
constexpr double kGateNormalizer = 16.0;
constexpr const char* kEmbeddings = "model.embeddings";

// Keys that change the computation and are not honoured, or that fla itself does not read.
void refuse_unsupported(const ConfigReader& in) {
  const std::string act = in.text("hidden_act", "swish");
  if (act != "swish") in.fail(formatted("hidden_act '{}' is not supported; supported for GLA: swish", act));
  for (const char* key : {"feature_map", "attn", "attnres_block_size"})
    if (in.has(key)) in.fail(formatted("'{}' is not supported for GLA; set it to null", key));
  for (const char* key : {"conv_bias", "use_gv"})
    if (in.flag(key, false)) in.fail(formatted("'{}': true is not supported for GLA", key));
  for (const char* key : {"use_gk", "elementwise_affine"})
    if (!in.flag(key, true)) in.fail(formatted("'{}': false is not supported for GLA", key));
  if (in.integer("gate_low_rank_dim", 1, kWidest, kGateRank) != kGateRank)
    in.fail("'gate_low_rank_dim' must be 16, as in fla, which does not read it");
  if (in.number("gate_logit_normalizer", kGateNormalizer) != kGateNormalizer)
    in.fail("'gate_logit_normalizer' must be 16, as in fla, which does not read it");
}

// The width of all heads together: int(hidden * ratio), which fla cuts to a whole number.
int64_t head_width(const ConfigReader& in, const char* key, double otherwise, const ModelSpec& spec) {
  constexpr double kMost = 64;
  constexpr int64_t kLargestHead = 4096;
  const double ratio = in.number(key, otherwise, 0.0, kMost);
  const auto width = static_cast<int64_t>(static_cast<double>(spec.hidden) * ratio);
  if (width < spec.heads || width % spec.heads != 0)
    in.fail(formatted("'hidden_size' times '{}' is {}, which 'num_heads' does not divide", key, width));
  if (width / spec.heads > kLargestHead)
    in.fail(
        formatted("heads of {} are not supported; supported: up to {}", width / spec.heads, kLargestHead));
  return width / spec.heads;
}

// fla's rule: 2/3 of hidden times the ratio, up to the next multiple of 256.
int64_t default_mlp_width(const ConfigReader& in, int64_t hidden) {
  constexpr int64_t kStep = 256;
  const int64_t ratio = in.integer("hidden_ratio", 1, 64, 4);
  const auto width = static_cast<int64_t>(static_cast<double>(hidden * ratio * 2) / 3.0);
  return (width + kStep - 1) / kStep * kStep;
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  refuse_unsupported(in);
  spec.hidden = in.integer("hidden_size", 1, kWidest, 2048);
  spec.layers = in.integer("num_hidden_layers", 1, kMostLayers, 24);
  spec.heads = in.integer("num_heads", 1, kWidest, 4);
  spec.kv_heads = in.integer("num_kv_heads", 1, kWidest, spec.heads);
  if (spec.heads % spec.kv_heads != 0) in.fail("'num_heads' must be a multiple of 'num_kv_heads'");
  spec.vocab = in.integer("vocab_size", 1, kLargestVocab, 32000);
  spec.mlp_width = in.integer("intermediate_size", 1, kWidest, default_mlp_width(in, spec.hidden));
  // The length of training: without encoded positions no text is too long.
  spec.max_positions = in.integer("max_position_embeddings", 1, kMostPositions, 2048);
  spec.rms_norm_eps = in.number("norm_eps", 1e-6, 0.0, 1.0);
  spec.tied_head = in.flag("tie_word_embeddings", false);
  spec.initializer_range = in.number("initializer_range", 0.02, 0.0, 1000.0);
  spec.rope.type = RopeType::none;
  LinearAttentionSpec linear;
  linear.key_dim = head_width(in, "expand_k", 0.5, spec);
  linear.value_dim = head_width(in, "expand_v", 1.0, spec);
  linear.output_gate = in.flag("use_output_gate", true);
  linear.fused_norm = in.flag("fuse_norm", true);
  if (in.flag("use_short_conv", false)) linear.conv_taps = in.integer("conv_size", 2, kMostConvTaps, 4);
  if (in.has("clamp_min")) linear.clamp_min = in.number("clamp_min", 0.0);
  spec.head_dim = std::max(linear.key_dim, linear.value_dim);
  spec.linear_attention = linear;
}

// h_TH is [tokens, hidden].
class GlaModel {
 public:
  explicit GlaModel(ModelBuilder& builder)
      : b_(builder), spec_(builder.spec()), linear_(*builder.spec().linear_attention) {}

  TensorId hidden(bool cached) {
    TensorId h_TH = b_.embedded(b_.input_named("input_ids"), b_.embedding_table(), std::string(kEmbeddings));
    for (int64_t i = 0; i < spec_.layers; ++i)
      h_TH = layer(h_TH, "model.layers." + std::to_string(i), cached, b_.decides(i, spec_.layers));
    return h_TH;
  }

 private:
  // The logits of the decays, by way of a few values.
  TensorId gate(TensorId n_TH, const std::string& attn) {
    const TensorId low = b_.linear(n_TH, attn + ".gk_proj.0", spec_.hidden, kGateRank, false);
    return b_.linear(low, attn + ".gk_proj.1", kGateRank, spec_.kv_heads * linear_.key_dim, true);
  }

  // Appends where sequences lie, or segments that share prefixes and the ones that they continue.
  Operands with_sequences(Operands operands) {
    operands.push_back(b_.input_named("seq_starts"));
    operands.push_back(b_.step());
    if (b_.shape().shares()) operands.push_back(b_.input_named("parents"));
    return operands;
  }

  TensorId recurrence(TensorId q, TensorId k, TensorId v, TensorId gate, const std::string& attn,
                      bool cached) {
    const Attrs attrs{{"heads", spec_.heads},
                      {"kv_heads", spec_.kv_heads},
                      {"scale", 1.0 / std::sqrt(static_cast<double>(linear_.key_dim))},
                      {"normalizer", kGateNormalizer},
                      {"clamp_min", linear_.clamp_min.value_or(-1e30)}};
    if (!cached) return b_.op1(OpKind::gla, with_sequences({q, k, v, gate}), attrs, attn, attn + ".o");
    const TensorId state = b_.graph().add_tensor({attn + ".state",
                                                  {spec_.kv_heads * linear_.key_dim, linear_.value_dim},
                                                  DType::f32,
                                                  Role::kv_cache,
                                                  Space::device,
                                                  b_.block()});
    return b_.op(OpKind::gla_cached, {q, k, v, gate, b_.step()}, attrs, {kNewTensor, state}, attn,
                 attn + ".o")[0];
  }

  // `name`_proj of n_TH, and the convolution behind it.
  TensorId projected(TensorId n_TH, const std::string& attn, const std::string& name, int64_t width,
                     bool cached) {
    const TensorId x = b_.linear(n_TH, formatted("{}.{}_proj", attn, name), spec_.hidden, width, false);
    const int64_t taps = linear_.conv_taps;
    if (taps == 0) return x;
    const std::string scope = formatted("{}.{}_conv1d", attn, name);
    const TensorId weight = b_.parameter(scope + ".weight", {width, 1, taps});
    if (!cached) return b_.op1(OpKind::short_conv, with_sequences({x, weight}), {}, scope, scope + ".out");
    const TensorId rows = b_.cache_tensor(scope + ".rows", taps - 1, width);
    return b_.op(OpKind::short_conv_cached, {x, weight, b_.step()}, {}, {kNewTensor, rows}, scope,
                 scope + ".out")[0];
  }

  // Norm per head, and the swish of the output gate as SwiGLU's.
  TensorId normalised(TensorId o, TensorId n_TH, const std::string& attn) {
    const bool fused = linear_.output_gate && linear_.fused_norm;
    const TensorId normal = b_.norm(o, attn + (fused ? ".g_norm_swish_gate" : ".g_norm"), linear_.value_dim);
    if (!linear_.output_gate) return normal;
    const TensorId g =
        b_.linear(n_TH, attn + ".g_proj", spec_.hidden, spec_.heads * linear_.value_dim, false);
    return b_.op1(OpKind::swiglu, {g, normal}, {}, attn, attn + ".gated");
  }

  TensorId attention(TensorId n_TH, const std::string& attn, bool cached, bool decides) {
    const int64_t key_width = spec_.kv_heads * linear_.key_dim;
    const TensorId q = projected(n_TH, attn, "q", spec_.heads * linear_.key_dim, cached);
    const TensorId k = projected(n_TH, attn, "k", key_width, cached);
    const TensorId v = projected(n_TH, attn, "v", spec_.kv_heads * linear_.value_dim, cached);
    TensorId o = recurrence(q, k, v, gate(n_TH, attn), attn, cached);
    if (decides) {
      o = b_.deciding(o, attn, attn + ".o_in");
      if (linear_.output_gate) n_TH = b_.deciding(n_TH, attn, attn + ".g_in");
    }
    return b_.linear(normalised(o, n_TH, attn), attn + ".o_proj", spec_.heads * linear_.value_dim,
                     spec_.hidden, false);
  }

  TensorId mlp(TensorId n_TH, const std::string& scope) {
    const TensorId gate = b_.linear(n_TH, scope + ".gate_proj", spec_.hidden, spec_.mlp_width, false);
    const TensorId up = b_.linear(n_TH, scope + ".up_proj", spec_.hidden, spec_.mlp_width, false);
    const TensorId s_TM = b_.op1(OpKind::swiglu, {gate, up}, {}, scope, scope + ".act");
    return b_.linear(s_TM, scope + ".down_proj", spec_.mlp_width, spec_.hidden, false);
  }

  TensorId layer(TensorId h_TH, const std::string& scope, bool cached, bool decides) {
    b_.begin_block(scope, "layer");
    const TensorId n1 = b_.norm(h_TH, scope + ".attn_norm", spec_.hidden);
    const TensorId a = attention(n1, scope + ".attn", cached, decides);
    if (decides) h_TH = b_.deciding(h_TH, scope, scope + ".h_in");
    const TensorId h2 = b_.op1(OpKind::add, {h_TH, a}, {}, scope, scope + ".h_attn");
    const TensorId n2 = b_.norm(h2, scope + ".mlp_norm", spec_.hidden);
    const TensorId h3 = b_.op1(OpKind::add, {h2, mlp(n2, scope + ".mlp")}, {}, scope, scope + ".h");
    b_.end_block();
    return h3;
  }

  ModelBuilder& b_;
  const ModelSpec& spec_;
  const LinearAttentionSpec& linear_;
};

void inputs(ModelBuilder& b) { b.token_inputs(kFirstAxis, b.shape().tokens); }
TensorId hidden(ModelBuilder& b) {
  if (b.cache().sequences > 1)
    throw UsageError("beam search is not supported for gated linear attention; leave out --num-beams");
  return GlaModel(b).hidden(b.cache().capacity > 0);
}
TensorId final_norm(ModelBuilder& b, TensorId h) { return b.norm(h, "model.norm", b.spec().hidden); }

}  // namespace

const FamilyRule gla_family{.model_type = "gla",
                            .architecture = "GLAForCausalLM",
                            .embedding = kEmbeddings,
                            .parse = parse,
                            .inputs = inputs,
                            .hidden = hidden,
                            .final_norm = final_norm,
                            .shares_prefixes = true};

}  // namespace plimsoll
