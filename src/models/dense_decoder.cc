#include "models/dense_decoder.h"

#include <algorithm>
#include <functional>

#include "base/format.h"
#include "graph/op_kind.h"
#include "ops/operands.h"

namespace plimsoll {
namespace {

constexpr int64_t kDefaultWindow = 4096;

// Keys that change the computation and that no kernel here honours.
void refuse_unsupported(const ConfigReader& in, const DenseDecoderFacts& facts) {
  const char* const act_key = facts.gelu_gate ? "hidden_activation" : "hidden_act";
  const std::string act = in.text(act_key, facts.gelu_gate ? "gelu_pytorch_tanh" : "silu");
  if (facts.gelu_gate ? act != "gelu_pytorch_tanh" : act != "silu" && act != "swish")
    in.fail(formatted("{} '{}' is not supported; supported: {}", act_key, act,
                      facts.gelu_gate ? "gelu_pytorch_tanh" : "silu"));
  if (in.number("attention_dropout", 0.0) != 0.0)
    in.fail("attention_dropout is not supported; set it to 0.0");
  if (facts.longrope_original == 0 && in.number("partial_rotary_factor", 1.0) != 1.0)
    in.fail("partial_rotary_factor is not supported for this model_type");
  if (in.integer("pretraining_tp", 1, 1024, 1) != 1) in.fail("pretraining_tp other than 1 is not supported");
  for (const char* key : {"use_bidirectional_attention", "per_layer_config"})
    if (in.has(key) && in.at(key) != false && !in.at(key).empty())
      in.fail(formatted("'{}' is not supported", key));
  if (!facts.may_bias_attention && in.flag("attention_bias", false))
    in.fail("'attention_bias' is not supported for this model_type");
  if (!facts.may_bias_mlp && in.flag("mlp_bias", false))
    in.fail("'mlp_bias' is not supported for this model_type");
}

// The windows of layers of which each slides or does not.
std::vector<int64_t> windows_of(const ConfigReader& in, const std::vector<bool>& sliding) {
  std::vector<int64_t> windows(sliding.size(), 0);
  if (std::ranges::none_of(sliding, std::identity())) return windows;
  if (in.names("sliding_window") && !in.has("sliding_window"))
    in.fail("'sliding_window' is null, but 'layer_types' has sliding-window layers");
  const int64_t window = in.integer("sliding_window", 1, kMostPositions, kDefaultWindow);
  for (size_t i = 0; i < windows.size(); ++i) windows[i] = sliding[i] ? window : 0;
  return windows;
}

}  // namespace

// The names of a layer's types, of which there are as many as layers.
std::vector<bool> slides_by_types(const ConfigReader& in, int64_t layers) {
  const ConfigReader::Json& types = in.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(layers))
    in.fail("'layer_types' must list one type per layer");
  std::vector<bool> sliding;
  for (const ConfigReader::Json& type : types) {
    if (type != "sliding_attention" && type != "full_attention")
      in.fail(formatted("'layer_types': {} is not supported", type.dump()));
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

std::vector<int64_t> windows_everywhere(const ConfigReader& in, int64_t layers) {
  return windows_from(in, layers, 0);
}

std::vector<int64_t> windows_from(const ConfigReader& in, int64_t layers, int64_t first) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), 0);
  const int64_t window =
      in.integer("sliding_window", 1, kMostPositions, in.names("sliding_window") ? 0 : kDefaultWindow);
  if (window == 0) return windows;
  for (int64_t i = first; i < layers; ++i) windows[static_cast<size_t>(i)] = window;
  if (!in.has("layer_types")) return windows;
  // transformers takes a Mistral with them for a Ministral, which is the same but for that.
  const std::vector<bool> sliding = slides_by_types(in, layers);
  for (size_t i = 0; i < windows.size(); ++i) windows[i] = sliding[i] ? window : 0;
  return windows;
}

std::vector<bool> sliding_layers(const ConfigReader& in, int64_t layers, int64_t full_every) {
  if (in.has("layer_types")) return slides_by_types(in, layers);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < layers; ++i) sliding.push_back((i + 1) % full_every != 0);
  return sliding;
}

std::vector<int64_t> qwen_windows(const ConfigReader& in, int64_t layers) {
  if (!in.flag("use_sliding_window", false)) return std::vector<int64_t>(static_cast<size_t>(layers), 0);
  return windows_from(in, layers, in.integer("max_window_layers", 0, kMostLayers, 28));
}

namespace {

// `of_class`: where the file leaves it out; 0: it may not.
int64_t required(const ConfigReader& in, const char* key, int64_t most, int64_t of_class) {
  return of_class > 0 ? in.integer(key, 1, most, of_class) : in.integer(key, 1, most);
}

// Reads in what layers differ: their windows and ropes.
void read_layers(const ConfigReader& in, const DenseDecoderFacts& facts, ModelSpec& spec) {
  spec.windows.assign(static_cast<size_t>(spec.layers), 0);
  if (facts.windows != nullptr) spec.windows = facts.windows(in, spec.layers);
  const RopeFacts rope{.theta = facts.rope_theta,
                       .may_turn_parts = facts.longrope_original > 0,
                       .longrope_original = facts.longrope_original};
  if (facts.sliding == nullptr) return read_rope(in, rope, spec);
  const std::vector<bool> sliding = facts.sliding(in, spec.layers);
  spec.windows = windows_of(in, sliding);
  if (facts.thetas_by_layer) return read_ropes_by_layer(in, *facts.thetas_by_layer, sliding, spec);
  read_rope(in, rope, spec);
}

}  // namespace

void parse_dense_decoder(const ConfigReader& in, const DenseDecoderFacts& facts, ModelSpec& spec,
                         const SizesOfClass& sizes) {
  refuse_unsupported(in, facts);
  spec.hidden = in.integer("hidden_size", 1, kWidest);
  spec.mlp_width = in.integer("intermediate_size", 1, kWidest);
  spec.layers = in.integer("num_hidden_layers", 1, kMostLayers);
  spec.heads = required(in, "num_attention_heads", kWidest, sizes.heads);
  spec.kv_heads =
      in.integer("num_key_value_heads", 1, kWidest,
                 in.names("num_key_value_heads") || facts.kv_heads == 0 ? spec.heads : facts.kv_heads);
  spec.vocab = required(in, "vocab_size", kLargestVocab, sizes.vocab);
  spec.max_positions = in.integer("max_position_embeddings", 1, kMostPositions, facts.max_positions);
  const int64_t default_head = facts.head_dim > 0 ? facts.head_dim : spec.hidden / spec.heads;
  spec.head_dim = in.integer("head_dim", 1, 256, default_head);
  if (!in.has("head_dim") && facts.head_dim == 0 && spec.hidden % spec.heads != 0)
    in.fail("'hidden_size' must be a multiple of 'num_attention_heads' where 'head_dim' is not given");
  if (spec.heads % spec.kv_heads != 0)
    in.fail("'num_attention_heads' must be a multiple of 'num_key_value_heads'");
  if (spec.head_dim % 8 != 0 || spec.head_dim > 256)
    in.fail(
        formatted("a head size of {} is not supported; supported: multiples of 8 up to 256", spec.head_dim));
  spec.rms_norm_eps = in.number("rms_norm_eps", facts.rms_norm_eps, 0.0, 1.0);
  spec.tied_head = in.flag("tie_word_embeddings", facts.tied_head);
  const bool bias = in.flag("attention_bias", false);
  spec.qkv_bias = facts.qkv_bias || bias;
  spec.o_bias = !facts.qkv_bias && bias;
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.qk_norm = facts.qk_norm;
  spec.qk_norm_of_rows = facts.qk_norm_of_rows;
  spec.norm_form = facts.norm_form;
  spec.norms_before = facts.norms_before;
  spec.norms_behind = facts.norms_behind;
  spec.gelu_gate = facts.gelu_gate;
  if (!in.names("pad_token_id")) spec.padding_row = spec.pad_token = facts.padding_row;
  spec.initializer_range = in.number("initializer_range", 0.02, 0.0, 1000.0);
  read_layers(in, facts, spec);
}

namespace {

// h_TH is [tokens, hidden].
class DenseDecoder {
 public:
  explicit DenseDecoder(ModelBuilder& builder)
      : b_(builder), spec_(builder.spec()), starts_(builder.input_named("seq_starts")) {}

  TensorId hidden() {
    const TensorId table = b_.embedding_table();
    for (size_t which = 0; which <= spec_.other_ropes.size(); ++which)
      tables_TD_.push_back(b_.rope_table(which));
    if (spec_.query_position_beta != 0)
      query_table_TD_ = b_.rope_table(
          0, {{"original_length", spec_.rope.original_length}, {"position_beta", spec_.query_position_beta}},
          "_q");
    TensorId h_TH = b_.embedded(b_.input_named("input_ids"), table, embedding_module(spec_));
    for (int64_t i = 0; i < spec_.layers; ++i) h_TH = layer(h_TH, i);
    return h_TH;
  }

 private:
  // Layers without rotation are turned by 0: their values keep their bits, and all blocks are alike, of which the
  // planner measures a few.
  [[nodiscard]] TensorId table_of(int64_t layer) const {
    return tables_TD_[spec_.rope_of_layer.empty()
                          ? 0
                          : static_cast<size_t>(spec_.rope_of_layer[static_cast<size_t>(layer)])];
  }

  // Queries may have a table of their own (Ministral 3).
  [[nodiscard]] TensorId query_table(int64_t layer) const {
    return query_table_TD_ == kNoTensor ? table_of(layer) : query_table_TD_;
  }

  // A projection to heads, normalised (per head: Qwen3, Gemma 3; over the row: OLMo 2) and rotated.
  TensorId rotated(TensorId n_TH, TensorId table_TD, const std::string& attn, const std::string& which,
                   int64_t heads) {
    const std::string scope = formatted("{}.{}_proj", attn, which);
    TensorId x = b_.linear(n_TH, scope, spec_.hidden, heads * spec_.head_dim, spec_.qkv_bias);
    const std::string norm = formatted("{}.{}_norm", attn, which);
    if (spec_.qk_norm_of_rows) x = b_.norm(x, norm, heads * spec_.head_dim);
    if (spec_.qk_norm) x = b_.norm(x, norm, spec_.head_dim);
    return turned(x, table_TD, attn, which);
  }

  TensorId turned(TensorId x, TensorId table_TD, const std::string& attn, const std::string& which) {
    return b_.rotated(x, table_TD, attn, formatted("{}.{}_rope", attn, which));
  }

  // Queries and keys are rotated.
  struct Heads {
    TensorId q = kNoTensor, k = kNoTensor, v = kNoTensor;
  };
  Heads fused_heads(TensorId n_TH, TensorId table_TD, const std::string& attn) {
    const int64_t width = spec_.kv_heads * spec_.head_dim;
    const TensorId qkv = b_.linear(n_TH, attn + ".qkv_proj", spec_.hidden,
                                   spec_.heads * spec_.head_dim + 2 * width, spec_.qkv_bias);
    const Operands parts =
        b_.op(OpKind::split_columns, {qkv},
              {{"groups", int64_t{1}}, {"a_width", spec_.heads * spec_.head_dim}, {"b_width", width}},
              {kNewTensor, kNewTensor, kNewTensor}, attn, attn + ".split");
    using at = operand::split_columns;
    return {turned(parts[at::a], table_TD, attn, "q"), turned(parts[at::b], table_TD, attn, "k"),
            parts[at::c]};
  }
  // Without q where it is made of other rows.
  Heads heads(TensorId n_TH, int64_t index, const std::string& attn, bool with_q) {
    const TensorId table_TD = table_of(index);
    if (spec_.fused_matrices) return fused_heads(n_TH, table_TD, attn);
    return {with_q ? rotated(n_TH, query_table(index), attn, "q", spec_.heads) : kNoTensor,
            rotated(n_TH, table_TD, attn, "k", spec_.kv_heads),
            b_.linear(n_TH, attn + ".v_proj", spec_.hidden, spec_.kv_heads * spec_.head_dim, spec_.qkv_bias)};
  }

  // Attention of the rows that decide to all rows before them: each is the last of its sequence.
  TensorId deciding_attention(TensorId n_TH, TensorId table_TD, TensorId k, TensorId v, Attrs attrs,
                              const std::string& attn) {
    const TensorId q = rotated(b_.deciding(n_TH, attn, attn + ".q_in"),
                               b_.deciding(table_TD, attn, attn + ".q_table"), attn, "q", spec_.heads);
    const TensorId key_starts = b_.attend_to_sequences(attrs);
    return b_.op(OpKind::attention, {q, k, v, b_.input_named("seq_starts"), b_.step(), key_starts},
                 std::move(attrs), {kNewTensor, kNewTensor}, attn, attn + ".o")[0];
  }

  TensorId mixed(TensorId n_TH, const std::string& attn, int64_t index) {
    const int64_t window = spec_.windows[static_cast<size_t>(index)];
    Attrs attrs{{"head_dim", spec_.head_dim}, {"window", window}};
    if (spec_.attention_scale > 0) attrs["scale"] = spec_.attention_scale;
    if (spec_.attention_softcap > 0) attrs["softcap"] = spec_.attention_softcap;
    const bool decides = b_.decides(index, spec_.layers);
    // A window that cuts has no place in attention of another axis, nor have trees of segments, and a fused matrix makes
    // the queries of all rows: there the rows are chosen behind it.
    const bool few = decides && (window == 0 || window >= b_.shape().length) && !b_.shape().shares() &&
                     !spec_.fused_matrices;
    const auto [q, k, v] = heads(n_TH, index, attn, !few);
    if (few) return deciding_attention(n_TH, query_table(index), k, v, std::move(attrs), attn);
    const TensorId o = b_.causal_attention(q, k, v, std::move(attrs), attn);
    return decides ? b_.deciding(o, attn, attn + ".o_in") : o;
  }

  TensorId attention(TensorId n_TH, const std::string& attn, int64_t index) {
    return b_.linear(mixed(n_TH, attn, index), attn + ".o_proj", spec_.heads * spec_.head_dim, spec_.hidden,
                     spec_.o_bias);
  }

  // Attention's or the MLP's result, as it is added: normalised and scaled where the family has it so.
  TensorId added(TensorId x_TH, const std::string& scope, const std::string& norm, const std::string& name) {
    if (spec_.norms_behind) x_TH = b_.norm(x_TH, scope + norm, spec_.hidden);
    x_TH = b_.dropout(x_TH, spec_.residual_dropout, formatted("{}{}_dropout", scope, name));
    return b_.scaled(x_TH, spec_.residual_factor, scope, scope + name);
  }

  TensorId layer(TensorId h_TH, int64_t index) {
    const std::string scope = formatted("{}.layers.{}", spec_.body, index);
    b_.begin_block(scope, "layer");
    const auto before = [&](TensorId x_TH, const char* norm) {
      return spec_.norms_before ? b_.norm(x_TH, scope + norm, spec_.hidden) : x_TH;
    };
    const TensorId a = added(attention(before(h_TH, ".input_layernorm"), scope + ".self_attn", index), scope,
                             ".post_attention_layernorm", ".a_scaled");
    if (b_.decides(index, spec_.layers)) h_TH = b_.deciding(h_TH, scope, scope + ".h_in");
    const TensorId h2 = b_.op1(OpKind::add, {h_TH, a}, {}, scope, scope + ".h_attn");
    // Llama's name is another norm's in families that have norms behind attention.
    const char* const of_mlp =
        spec_.norms_behind ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
    const TensorId m = added(b_.gated_mlp(before(h2, of_mlp), scope + ".mlp"), scope,
                             ".post_feedforward_layernorm", ".m_scaled");
    const TensorId h3 = b_.op1(OpKind::add, {h2, m}, {}, scope, scope + ".h");
    b_.end_block();
    return h3;
  }

  ModelBuilder& b_;
  const ModelSpec& spec_;
  TensorId starts_;
  std::vector<TensorId> tables_TD_;  // by ModelSpec::rope_of_layer
  TensorId query_table_TD_ = kNoTensor;
};

}  // namespace

void dense_decoder_inputs(ModelBuilder& b) {
  b.token_inputs(kFirstAxis, b.shape().tokens);
  for (size_t which = 0; which <= b.spec().other_ropes.size(); ++which)
    b.input(rope_input(which), {b.shape().delimited(), b.spec().rotary() / 2 + 1}, DType::f32);
}

TensorId dense_decoder_hidden(ModelBuilder& b) { return DenseDecoder(b).hidden(); }

TensorId dense_decoder_final_norm(ModelBuilder& b, TensorId h) {
  return b.norm(h, b.spec().body + ".norm", b.spec().hidden);
}

}  // namespace plimsoll
