// ModernBERT: an encoder with norms before attention and MLP, one matrix for queries, keys and values and one for the
// MLP's gates and values, rotary positions whose base and window go by the layer's type. Scores are made of the first
// token, or of the mean of all. Names and places of dropout as in transformers' modeling_modernbert.py.
#include <algorithm>

#include "base/format.h"
#include "graph/op_kind.h"
#include "models/dense_decoder.h"
#include "models/rope.h"
#include "ops/operands.h"

namespace plimsoll {
namespace {

constexpr const char* kHead = "head.dense";

EncoderSpec::Activation activation_of(const ConfigReader& in, const char* key) {
  const std::string act = in.text(key, "gelu");
  if (act == "gelu") return EncoderSpec::Activation::gelu;
  if (act == "gelu_new" || act == "gelu_pytorch_tanh") return EncoderSpec::Activation::gelu_tanh;
  in.fail(formatted("{} '{}' is not supported; supported: gelu, gelu_new, gelu_pytorch_tanh", key, act));
}

void parse_sizes(const ConfigReader& in, ModelSpec& spec) {
  spec.hidden = in.integer("hidden_size", 1, kWidest, 768);
  spec.mlp_width = in.integer("intermediate_size", 1, kWidest, 1152);
  spec.layers = in.integer("num_hidden_layers", 1, kMostLayers, 22);
  spec.heads = spec.kv_heads = in.integer("num_attention_heads", 1, kWidest, 12);
  spec.vocab = in.integer("vocab_size", 1, kLargestVocab, 50368);
  spec.max_positions = in.integer("max_position_embeddings", 1, kLargestVocab, 8192);
  if (spec.hidden % spec.heads != 0) in.fail("'hidden_size' must be a multiple of 'num_attention_heads'");
  spec.head_dim = spec.hidden / spec.heads;
  if (spec.head_dim % 8 != 0 || spec.head_dim > 256)
    in.fail(
        formatted("a head size of {} is not supported; supported: multiples of 8 up to 256", spec.head_dim));
}

// True for each layer that slides: as layer_types says, else all but every n-th, the first among them.
std::vector<bool> sliding_of(const ConfigReader& in, int64_t layers) {
  if (in.has("layer_types")) return slides_by_types(in, layers);
  const int64_t every = in.integer("global_attn_every_n_layers", 1, kMostLayers, 3);
  std::vector<bool> sliding;
  for (int64_t i = 0; i < layers; ++i) sliding.push_back(i % every != 0);
  return sliding;
}

void parse_layers(const ConfigReader& in, ModelSpec& spec) {
  if (in.has("rope_scaling") && !in.at("rope_scaling").empty())
    in.fail("'rope_scaling' is not supported for this model_type; give rope_parameters by layer type");
  const std::vector<bool> sliding = sliding_of(in, spec.layers);
  // local_attention counts both sides; a query sees keys up to half of it away, on each.
  const int64_t window = in.integer("local_attention", 0, kMostPositions, 128) / 2 + 1;
  for (const bool one : sliding) spec.windows.push_back(one ? window : 0);
  read_ropes_by_layer(in, {160000.0, 10000.0, "local_rope_theta", "global_rope_theta"}, sliding, spec);
}

void parse(const ConfigReader& in, ModelSpec& spec) {
  parse_sizes(in, spec);
  parse_layers(in, spec);
  EncoderSpec& encoder = spec.encoder.emplace();
  encoder.activation = activation_of(in, "hidden_activation");
  encoder.head_activation = activation_of(in, "classifier_activation");
  encoder.token_types = 1;
  encoder.layer_norm_eps = in.number("norm_eps", 1e-5, 0.0, 1.0);
  encoder.norm_bias = in.flag("norm_bias", false);
  encoder.head_bias = in.flag("classifier_bias", false);
  encoder.dropout = in.number("embedding_dropout", 0.0, 0.0, 0.99);
  encoder.attention_dropout = in.number("attention_dropout", 0.0, 0.0, 0.99);
  encoder.mlp_dropout = in.number("mlp_dropout", 0.0, 0.0, 0.99);
  encoder.head_dropout = in.number("classifier_dropout", 0.0, 0.0, 0.99);
  encoder.pooler = encoder.words_layer = kHead;
  encoder.words_bias = in.flag("decoder_bias", true);
  spec.tied_head = in.flag("tie_word_embeddings", true);
  const std::string pooling = in.text("classifier_pooling", "cls");
  if (pooling != "cls" && pooling != "mean")
    in.fail(formatted("classifier_pooling '{}' is not supported; supported: cls, mean", pooling));
  encoder.pools_mean = pooling == "mean";
  spec.qkv_bias = spec.o_bias = in.flag("attention_bias", false);
  spec.mlp_bias = in.flag("mlp_bias", false);
  spec.initializer_range = in.number("initializer_range", 0.02, 0.0, 1000.0);
  spec.pad_token = in.integer("pad_token_id", 0, spec.vocab - 1, std::min<int64_t>(50283, spec.vocab - 1));
}

void inputs(ModelBuilder& b) {
  b.token_inputs(kFirstAxis, b.shape().tokens);
  for (size_t which = 0; which <= b.spec().other_ropes.size(); ++which)
    b.input(rope_input(which), {b.shape().delimited(), b.spec().head_dim / 2 + 1}, DType::f32);
}

TensorId normed(ModelBuilder& b, TensorId x, const std::string& scope) {
  const EncoderSpec& encoder = *b.spec().encoder;
  return b.layer_norm(x, scope, b.spec().hidden, encoder.layer_norm_eps, encoder.norm_bias);
}

const char* approximate(EncoderSpec::Activation activation) {
  return activation == EncoderSpec::Activation::gelu_tanh ? "tanh" : "none";
}

// h_TH is [tokens, hidden].
class Encoder {
 public:
  explicit Encoder(ModelBuilder& builder) : b_(builder), spec_(builder.spec()), encoder_(*spec_.encoder) {}

  TensorId hidden() {
    for (size_t which = 0; which <= spec_.other_ropes.size(); ++which)
      tables_TD_.push_back(b_.rope_table(which));
    TensorId h_TH = embeddings();
    for (int64_t i = 0; i < spec_.layers; ++i) h_TH = layer(h_TH, i);
    return encoder_.pools_mean && b_.scores() ? mean(normed(b_, h_TH, "model.final_norm")) : h_TH;
  }

 private:
  TensorId embeddings() {
    const std::string scope = "model.embeddings.tok_embeddings";
    const TensorId words = b_.embedded(b_.input_named("input_ids"), b_.embedding_table(), scope);
    return b_.dropout(normed(b_, words, "model.embeddings.norm"), encoder_.dropout, "model.embeddings.drop");
  }

  TensorId attention(TensorId n_TH, const std::string& attn, int64_t index) {
    const int64_t window = spec_.windows[static_cast<size_t>(index)];
    const TensorId table_TD =
        tables_TD_[spec_.rope_of_layer.empty()
                       ? 0
                       : static_cast<size_t>(spec_.rope_of_layer[static_cast<size_t>(index)])];
    const TensorId qkv = b_.linear(n_TH, attn + ".Wqkv", spec_.hidden, 3 * spec_.hidden, spec_.qkv_bias);
    const Operands parts =
        b_.op(OpKind::split_columns, {qkv},
              {{"groups", int64_t{1}}, {"a_width", spec_.hidden}, {"b_width", spec_.hidden}},
              {kNewTensor, kNewTensor, kNewTensor}, attn, attn + ".split");
    using at = operand::split_columns;
    Attrs attrs{{"head_dim", spec_.head_dim},
                {"window", window},
                {"causal", int64_t{0}},
                {"length", b_.shape().length}};
    Operands operands = {b_.rotated(parts[at::a], table_TD, attn, attn + ".q_rope"),
                         b_.rotated(parts[at::b], table_TD, attn, attn + ".k_rope"), parts[at::c],
                         b_.input_named("seq_starts"), b_.step()};
    if (b_.mode() == Mode::train && encoder_.attention_dropout > 0) {
      attrs["dropout"] = encoder_.attention_dropout;
      operands.resize(operand::attention::samples, kNoTensor);  // by these and positions dropout draws
      for (const char* of : {"samples", "positions"}) operands.push_back(b_.input_named(of));
    }
    return b_.op(OpKind::attention, std::move(operands), std::move(attrs), {kNewTensor, kNewTensor}, attn,
                 attn + ".mix")[0];
  }

  TensorId mlp(TensorId n_TH, const std::string& scope) {
    const TensorId both = b_.linear(n_TH, scope + ".Wi", spec_.hidden, 2 * spec_.mlp_width, spec_.mlp_bias);
    const TensorId s_TM =
        b_.op1(OpKind::geglu, {both, kNoTensor},
               {{"approximate", std::string(approximate(encoder_.activation))}}, scope, scope + ".act");
    return b_.linear(b_.dropout(s_TM, encoder_.mlp_dropout, scope + ".drop"), scope + ".Wo", spec_.mlp_width,
                     spec_.hidden, spec_.mlp_bias);
  }

  // The last layer continues with the first tokens alone where scores are made of those.
  TensorId layer(TensorId h_TH, int64_t index) {
    const std::string scope = "model.layers." + std::to_string(index), attn = scope + ".attn";
    b_.begin_block(scope, "layer");
    TensorId o = attention(index == 0 ? h_TH : normed(b_, h_TH, scope + ".attn_norm"), attn, index);
    if (!encoder_.pools_mean && b_.decides(index, spec_.layers)) {
      o = b_.deciding(o, attn, attn + ".o_in");
      h_TH = b_.deciding(h_TH, scope, scope + ".h_in");
    }
    const TensorId a = b_.dropout(b_.linear(o, attn + ".Wo", spec_.hidden, spec_.hidden, spec_.o_bias),
                                  encoder_.attention_dropout, attn + ".out_drop");
    const TensorId h2 = b_.op1(OpKind::add, {h_TH, a}, {}, scope, scope + ".h_attn");
    const TensorId m = mlp(normed(b_, h2, scope + ".mlp_norm"), scope + ".mlp");
    const TensorId h3 = b_.op1(OpKind::add, {h2, m}, {}, scope, scope + ".h");
    b_.end_block();
    return h3;
  }

  TensorId mean(TensorId y_TH) {
    const TensorId starts = b_.input_named("seq_starts");
    const AxisId sequences = sequence_axis(spec_);
    b_.set_axis(sequences);
    return b_.op1(OpKind::mean_rows, {y_TH, starts, b_.step()}, {{"rows_of", int64_t{sequences} - 1}},
                  "model", "model.mean");
  }

  ModelBuilder& b_;
  const ModelSpec& spec_;
  const EncoderSpec& encoder_;
  std::vector<TensorId> tables_TD_;  // by ModelSpec::rope_of_layer
};

TensorId hidden(ModelBuilder& b) { return Encoder(b).hidden(); }

// The layer and norm that heads for words and for scores begin with.
TensorId begin_head(ModelBuilder& b, TensorId x_BH) {
  const EncoderSpec& encoder = *b.spec().encoder;
  const int64_t hidden = b.spec().hidden;
  const bool fresh = encoder.fresh_pooler;
  b.parameter("head.dense.weight", {hidden, hidden}, fresh ? kScoreHead : kMatrix);
  if (encoder.head_bias) b.parameter("head.dense.bias", {hidden}, fresh ? kScoreBias : kBias);
  const TensorId dense = b.linear(x_BH, kHead, hidden, hidden, encoder.head_bias);
  const TensorId act =
      b.op1(OpKind::gelu, {dense}, {{"approximate", std::string(approximate(encoder.head_activation))}},
            kHead, "head.dense.act");
  ParameterInfo norm = kNorm;
  if (fresh) norm.origin = Origin::fresh;
  b.parameter("head.norm.weight", {hidden}, norm);
  if (encoder.norm_bias) b.parameter("head.norm.bias", {hidden}, fresh ? kScoreBias : kBias);
  return normed(b, act, "head.norm");
}

TensorId score_head(ModelBuilder& b, TensorId x_BH) {
  const EncoderSpec& encoder = *b.spec().encoder;
  if (!encoder.pools_mean) x_BH = normed(b, x_BH, "model.final_norm");
  return b.dropout(begin_head(b, x_BH), encoder.head_dropout, "drop");
}

TensorId words_input(ModelBuilder& b, TensorId h_TH) {
  return begin_head(b, normed(b, h_TH, "model.final_norm"));
}

}  // namespace

const FamilyRule modernbert_family{.model_type = "modernbert",
                                   .architecture = "ModernBertForMaskedLM",
                                   .embedding = "model.embeddings.tok_embeddings",
                                   .parse = parse,
                                   .inputs = inputs,
                                   .hidden = hidden,
                                   .final_norm = score_head,
                                   .score = "classifier",
                                   .score_bias = true,
                                   .words_input = words_input,
                                   .words_module = "decoder",
                                   .words_bias = "decoder.bias",
                                   .also_read = {"ModernBertModel"}};

}  // namespace plimsoll
