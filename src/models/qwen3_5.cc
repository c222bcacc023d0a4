// Qwen3.5: three layers of the gated delta rule to one of attention, whose output is gated. Norms have a factor of one
// plus the weight, but for the one within the delta rule's layers. Qwen3-Next is the same with matrices that are fused by
// key head; its sparse MLPs are refused.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "models/family.h"
#include "models/rope.h"
#include "ops/operands.h"
#include "ops/scan/short_conv_kernels.h"

namespace plimsoll {
namespace {

constexpr std::string_view kNext = "qwen3_next";
constexpr double kTurnedPart = 0.25;  // of a head, where the file says nothing
constexpr double kKeyEps = 1e-6;      // of the lengths of queries and keys, in transformers' code

// Keys that change the computation and are not honoured.
void refuse_unsupported(const ConfigReader& in) {
  const std::string act = in.text("hidden_act", "silu");
  if (act != "silu") in.fail(formatted("hidden_act '{}' is not supported; supported: silu", act));
  const std::string gate = in.text("output_gate_type", "swish");
  if (gate != "swish" && gate != "silu")
    in.fail(formatted("output_gate_type '{}' is not supported; supported: swish", gate));
  if (!in.flag("attn_output_gate", true)) in.fail("'attn_output_gate': false is not supported");
  const std::string state = in.text("mamba_ssm_dtype", "float32");
  if (state != "float32")
    in.fail(formatted("mamba_ssm_dtype '{}' is not supported; supported: float32", state));
  if (in.number("attention_dropout", 0.0) != 0.0)
    in.fail("attention_dropout is not supported; set it to 0.0");
  if (in.has("per_layer_config") && !in.at("per_layer_config").empty())
    in.fail("'per_layer_config' is not supported");
}

int64_t head_size(const ConfigReader& in, const char* key, int64_t otherwise) {
  const int64_t size = in.integer(key, 1, 256, otherwise);
  if (size % 8 != 0) in.fail(formatted("'{}' is {}; supported: multiples of 8 up to 256", key, size));
  return size;
}

// For each layer whether it attends: as layer_types says, else every full_attention_interval-th does.
std::vector<bool> attending_layers(const ConfigReader& in, int64_t layers) {
  std::vector<bool> attends;
  if (!in.has("layer_types")) {
    const int64_t interval = in.integer("full_attention_interval", 1, kMostLayers, 4);
    for (int64_t i = 0; i < layers; ++i) attends.push_back((i + 1) % interval == 0);
    return attends;
  }
  const ConfigReader::Json& types = in.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(layers))
    in.fail("'layer_types' must list one type per layer");
  for (const ConfigReader::Json& type : types) {
    if (type != "linear_attention" && type != "full_attention")
      in.fail(formatted("'layer_types': {} is not supported", type.dump()));
    attends.push_back(type == "full_attention");
  }
  return attends;
}

DeltaNetSpec read_delta_net(const ConfigReader& in, int64_t layers) {
  constexpr int64_t kMostHeads = 4096;
  DeltaNetSpec delta;
  delta.key_heads = in.integer("linear_num_key_heads", 1, kMostHeads, 16);
  delta.value_heads = in.integer("linear_num_value_heads", 1, kMostHeads, 32);
  if (delta.value_heads % delta.key_heads != 0)
    in.fail("'linear_num_value_heads' must be a multiple of 'linear_num_key_heads'");
  delta.key_dim = head_size(in, "linear_key_head_dim", 128);
  delta.value_dim = head_size(in, "linear_value_head_dim", 128);
  delta.conv_taps = in.integer("linear_conv_kernel_dim", 2, kMostConvTaps, 4);
  delta.attends = attending_layers(in, layers);
  return delta;
}

// Key heads of a config.json that names none (transformers: Qwen3_5TextConfig, Qwen3NextConfig).
constexpr int64_t kKeyHeads = 4;
constexpr int64_t kKeyHeadsOfNext = 2;

void parse_decoder(const ConfigReader& in, int64_t key_heads, ModelSpec& spec) {
  refuse_unsupported(in);
  spec.hidden = in.integer("hidden_size", 1, kWidest);
  spec.mlp_width = in.integer("intermediate_size", 1, kWidest);
  spec.layers = in.integer("num_hidden_layers", 1, kMostLayers);
  spec.heads = in.integer("num_attention_heads", 1, kWidest);
  spec.kv_heads = in.integer("num_key_value_heads", 1, kWidest, key_heads);
  if (spec.heads % spec.kv_heads != 0)
    in.fail("'num_attention_heads' must be a multiple of 'num_key_value_heads'");
  spec.vocab = in.integer("vocab_size", 1, kLargestVocab);
  spec.max_positions = in.integer("max_position_embeddings", 1, kMostPositions, 32768);
  spec.head_dim = head_size(in, "head_dim", 256);
  spec.rms_norm_eps = in.number("rms_norm_eps", 1e-6, 0.0, 1.0);
  spec.tied_head = in.flag("tie_word_embeddings", false);
  spec.qkv_bias = spec.o_bias = in.flag("attention_bias", false);
  spec.norm_form = NormForm::plus_one;
  spec.initializer_range = in.number("initializer_range", 0.02, 0.0, 1000.0);
  spec.windows.assign(static_cast<size_t>(spec.layers), 0);
  spec.delta_net = read_delta_net(in, spec.layers);
  // Sections of RoPE by time, height and width, mrope_section, are the same to text, where the three are.
  read_rope(in, {.may_turn_parts = true, .turned_part = kTurnedPart}, spec);
}

void parse(const ConfigReader& in, ModelSpec& spec) { parse_decoder(in, kKeyHeads, spec); }

// Refuses layers whose MLP is a mixture of experts, as transformers finds them.
void refuse_experts(const ConfigReader& in, int64_t layers) {
  constexpr int64_t kMostExperts = 1 << 20;
  const int64_t experts = in.integer("num_experts", 0, kMostExperts, 512);
  const int64_t step = in.integer("decoder_sparse_step", 1, kMostLayers, 1);
  const ConfigReader::Json none = ConfigReader::Json::array();
  const ConfigReader::Json& dense = in.has("mlp_only_layers") ? in.at("mlp_only_layers") : none;
  if (!dense.is_array()) in.fail("'mlp_only_layers' must list layers");
  for (int64_t i = 0; i < layers; ++i) {
    if (experts == 0 || (i + 1) % step != 0 || std::ranges::find(dense, ConfigReader::Json(i)) != dense.end())
      continue;
    in.fail(formatted(
        "layer {} needs a mixture of experts ('num_experts': {}, 'decoder_sparse_step': {}), which is not "
        "supported; the nearest that works is qwen3_5_text, and qwen3_next whose layers are all dense "
        "('mlp_only_layers')",
        i, experts, step));
  }
}

void parse_next(const ConfigReader& in, ModelSpec& spec) {
  parse_decoder(in, kKeyHeadsOfNext, spec);
  refuse_experts(in, spec.layers);
}

// The products of the input of a layer with a delta rule: q, k and v in one tensor, the gate z if it is a part of the same
// product, and those that strengths and decays are computed from.
struct Projections {
  TensorId qkv, z, b, a;
};

// h_TH is [tokens, hidden].
class Qwen35 {
 public:
  explicit Qwen35(ModelBuilder& builder)
      : b_(builder),
        spec_(builder.spec()),
        delta_(*builder.spec().delta_net),
        fused_(builder.spec().family == kNext),
        cached_(builder.cache().capacity > 0) {}

  TensorId hidden() {
    const TensorId table = b_.embedding_table();
    table_TD_ = b_.rope_table(0);
    TensorId h_TH = b_.embedded(b_.input_named("input_ids"), table, embedding_module(spec_));
    for (int64_t i = 0; i < spec_.layers; ++i) h_TH = layer(h_TH, i);
    return h_TH;
  }

 private:
  // Splits each of `groups` of columns into the first `a`, the next `b` and the rest, where there is one.
  Operands split(TensorId x, int64_t groups, int64_t a, int64_t b, const std::string& scope,
                 const std::string& name) {
    const bool rest = b_.graph().tensor(x).shape[1] / groups > a + b;
    return b_.op(OpKind::split_columns, {x}, {{"groups", groups}, {"a_width", a}, {"b_width", b}},
                 {kNewTensor, kNewTensor, rest ? kNewTensor : kNoTensor}, scope, name);
  }

  // Adds to the attributes of a cached op how many sequences have a state, and how its rows continue them.
  Attrs of_sequences(Attrs attrs) const {
    if (b_.cache().sequences > 1) attrs["sequences"] = b_.cache().sequences;
    if (b_.cache().apart) attrs["apart"] = int64_t{1};
    return attrs;
  }

  // Appends where sequences lie, or segments that share prefixes and the ones that they continue.
  Operands with_sequences(Operands operands) {
    operands.push_back(b_.input_named("seq_starts"));
    operands.push_back(b_.step());
    if (b_.shape().shares()) operands.push_back(b_.input_named("parents"));
    return operands;
  }

  TensorId turned(TensorId x, const std::string& attn, const std::string& which) {
    x = b_.norm(x, formatted("{}.{}_norm", attn, which), spec_.head_dim);
    return b_.rotated(x, table_TD_, attn, formatted("{}.{}_rope", attn, which));
  }

  TensorId attention(TensorId n_TH, const std::string& attn, bool decides) {
    const int64_t width = spec_.heads * spec_.head_dim, kv_width = spec_.kv_heads * spec_.head_dim;
    const TensorId both = b_.linear(n_TH, attn + ".q_proj", spec_.hidden, 2 * width, spec_.qkv_bias);
    const TensorId k = b_.linear(n_TH, attn + ".k_proj", spec_.hidden, kv_width, spec_.qkv_bias);
    const TensorId v = b_.linear(n_TH, attn + ".v_proj", spec_.hidden, kv_width, spec_.qkv_bias);
    // By head: its query, then its gate.
    using at = operand::split_columns;
    const Operands parts =
        split(both, spec_.heads, spec_.head_dim, spec_.head_dim, attn, attn + ".q_and_gate");
    TensorId gate = parts[at::b];
    TensorId o = b_.causal_attention(turned(parts[at::a], attn, "q"), turned(k, attn, "k"), v,
                                     {{"head_dim", spec_.head_dim}, {"window", int64_t{0}}}, attn);
    if (decides) {
      o = b_.deciding(o, attn, attn + ".o_in");
      gate = b_.deciding(gate, attn, attn + ".gate_in");
    }
    const TensorId gated = b_.op1(OpKind::sigmoid_gate, {o, gate}, {}, attn, attn + ".gated");
    return b_.linear(gated, attn + ".o_proj", width, spec_.hidden, spec_.o_bias);
  }

  Projections projected(TensorId n_TH, const std::string& net) {
    const auto product = [&](const char* name, int64_t width) {
      return b_.linear(n_TH, net + name, spec_.hidden, width, false);
    };
    const int64_t keys = delta_.key_width(), values = delta_.value_width(), heads = delta_.value_heads;
    if (!fused_)
      return {product(".in_proj_qkv", 2 * keys + values), kNoTensor, product(".in_proj_b", heads),
              product(".in_proj_a", heads)};
    using at = operand::split_columns;
    const int64_t group = heads / delta_.key_heads, width = group * delta_.value_dim;
    const Operands parts = split(product(".in_proj_qkvz", 2 * (keys + values)), delta_.key_heads,
                                 delta_.key_dim, delta_.key_dim, net, net + ".q_k_vz");
    const Operands v_z = split(parts[at::c], delta_.key_heads, width, width, net, net + ".v_z");
    const Operands b_a =
        split(product(".in_proj_ba", 2 * heads), delta_.key_heads, group, group, net, net + ".b_a");
    const TensorId qkv = b_.op1(OpKind::join_columns, {parts[at::a], parts[at::b], v_z[at::a]},
                                {{"groups", int64_t{1}}}, net, net + ".qkv_in");
    return {qkv, v_z[at::b], b_a[at::a], b_a[at::b]};
  }

  // Queries, keys and values behind the convolution, which is over all of them.
  Operands convolved(TensorId x, const std::string& net) {
    const int64_t width = b_.graph().tensor(x).shape[1];
    const std::string scope = net + ".conv1d";
    const TensorId weight = b_.parameter(scope + ".weight", {width, 1, delta_.conv_taps});
    TensorId y = kNoTensor;
    if (cached_) {
      const TensorId rows =
          b_.cache_tensor(scope + ".rows", b_.cache().sequences * (delta_.conv_taps - 1), width);
      y = b_.op(OpKind::short_conv_cached, {x, weight, b_.step()}, of_sequences({}), {kNewTensor, rows},
                scope, scope + ".out")[0];
    } else {
      y = b_.op1(OpKind::short_conv, with_sequences({x, weight}), {}, scope, scope + ".out");
    }
    return split(y, 1, delta_.key_width(), delta_.key_width(), net, net + ".qkv");
  }

  // Decays' logarithms and the shares of what is written that is new, f32.
  Operands gates(const Projections& from, const std::string& net) {
    const int64_t heads = delta_.value_heads;
    const TensorId decay = b_.parameter(net + ".A_log", {heads});  // new: init_base_weights()
    const TensorId bias =
        b_.parameter(net + ".dt_bias", {heads}, {.init = Initialiser::ones, .decays = false});
    return b_.op(OpKind::delta_gate, {from.a, from.b, decay, bias}, {}, {kNewTensor, kNewTensor}, net, net);
  }

  TensorId recurrence(const Operands& parts, const Operands& gates, const std::string& net) {
    using at = operand::split_columns;
    const Attrs attrs{{"heads", delta_.value_heads}, {"key_heads", delta_.key_heads}, {"eps", kKeyEps}};
    Operands operands = {parts[at::a], parts[at::b], parts[at::c], gates[operand::delta_gate::g],
                         gates[operand::delta_gate::beta]};
    if (!cached_)
      return b_.op1(OpKind::delta_rule, with_sequences(std::move(operands)), attrs, net, net + ".o");
    const TensorId state =
        b_.graph().add_tensor({net + ".state",
                               {b_.cache().sequences * delta_.value_heads * delta_.key_dim, delta_.value_dim},
                               DType::f32,
                               Role::kv_cache,
                               Space::device,
                               b_.block()});
    operands.push_back(b_.step());
    return b_.op(OpKind::delta_rule_cached, std::move(operands), of_sequences(attrs), {kNewTensor, state},
                 net, net + ".o")[0];
  }

  TensorId delta_net(TensorId n_TH, const std::string& net, bool decides) {
    Projections from = projected(n_TH, net);
    const Operands parts = convolved(from.qkv, net);
    TensorId o = recurrence(parts, gates(from, net), net);
    TensorId& gate_from = fused_ ? from.z : n_TH;
    if (decides) {
      o = b_.deciding(o, net, net + ".o_in");
      gate_from = b_.deciding(gate_from, net, net + ".z_in");
    }
    const TensorId z =
        fused_ ? from.z : b_.linear(n_TH, net + ".in_proj_z", spec_.hidden, delta_.value_width(), false);
    const TensorId normal = b_.norm(o, net + ".norm", delta_.value_dim, NormForm::round_first);
    const TensorId gated = b_.op1(OpKind::swiglu, {z, normal}, {}, net, net + ".gated");
    return b_.linear(gated, net + ".out_proj", delta_.value_width(), spec_.hidden, false);
  }

  TensorId layer(TensorId h_TH, int64_t index) {
    const std::string scope = formatted("{}.layers.{}", spec_.body, index);
    const bool decides = b_.decides(index, spec_.layers);
    b_.begin_block(scope, "layer");
    const TensorId n1 = b_.norm(h_TH, scope + ".input_layernorm", spec_.hidden);
    const TensorId a = delta_.attends[static_cast<size_t>(index)]
                           ? attention(n1, scope + ".self_attn", decides)
                           : delta_net(n1, scope + ".linear_attn", decides);
    if (decides) h_TH = b_.deciding(h_TH, scope, scope + ".h_in");
    const TensorId h2 = b_.op1(OpKind::add, {h_TH, a}, {}, scope, scope + ".h_attn");
    const TensorId n2 = b_.norm(h2, scope + ".post_attention_layernorm", spec_.hidden);
    const TensorId h3 = b_.op1(OpKind::add, {h2, b_.gated_mlp(n2, scope + ".mlp")}, {}, scope, scope + ".h");
    b_.end_block();
    return h3;
  }

  ModelBuilder& b_;
  const ModelSpec& spec_;
  const DeltaNetSpec& delta_;
  bool fused_;  // q, k, v and z by one matrix, b and a by another, their rows grouped by key head
  bool cached_;
  TensorId table_TD_ = kNoTensor;
};

void inputs(ModelBuilder& b) {
  b.token_inputs(kFirstAxis, b.shape().tokens);
  b.input(rope_input(0), {b.shape().delimited(), b.spec().rotary() / 2 + 1}, DType::f32);
}
TensorId hidden(ModelBuilder& b) { return Qwen35(b).hidden(); }
TensorId final_norm(ModelBuilder& b, TensorId h) {
  return b.norm(h, b.spec().body + ".norm", b.spec().hidden);
}

}  // namespace

const FamilyRule qwen3_5_text_family{.model_type = "qwen3_5_text",
                                     .architecture = "Qwen3_5ForCausalLM",
                                     .scoring_name = "Qwen3_5TextForSequenceClassification",
                                     .parse = parse,
                                     .inputs = inputs,
                                     .hidden = hidden,
                                     .final_norm = final_norm,
                                     .shares_prefixes = true};
const FamilyRule qwen3_next_family{.model_type = kNext,
                                   .architecture = "Qwen3NextForCausalLM",
                                   .parse = parse_next,
                                   .inputs = inputs,
                                   .hidden = hidden,
                                   .final_norm = final_norm,
                                   .shares_prefixes = true};

}  // namespace plimsoll
