// BERT and RoBERTa: an encoder with trained positions and token types, a layer norm behind each sum, a bias
// at every product. Scores are made of the first token. Names and places of dropout as in transformers'
// modeling_bert.py and modeling_roberta.py.
#include "base/format.h"
#include "graph/op_kind.h"
#include "models/family.h"
#include "ops/operands.h"

namespace plimsoll {
namespace {

// The module of the encoder in a checkpoint, of which the family's embedding is the beginning.
std::string base_of(const ModelSpec& spec) {
  const std::string_view embedding = family_of(spec).embedding;
  return std::string(embedding.substr(0, embedding.find('.')));
}

// The facts in which the classes of configuration differ.
struct EncoderFacts {
  int64_t vocab = 30522, padding = 0;
  bool counts_from_padding = false;
};

EncoderSpec::Activation activation_of(const ConfigReader& in) {
  const std::string act = in.text("hidden_act", "gelu");
  if (act == "gelu") return EncoderSpec::Activation::gelu;
  if (act == "gelu_new" || act == "gelu_pytorch_tanh") return EncoderSpec::Activation::gelu_tanh;
  if (act == "relu") return EncoderSpec::Activation::relu;
  in.fail(
      formatted("hidden_act '{}' is not supported; supported: gelu, gelu_new, gelu_pytorch_tanh, relu", act));
}

// Keys that change the computation and that nothing here honours.
void refuse_unsupported(const ConfigReader& in) {
  for (const char* key : {"is_decoder", "add_cross_attention"})
    if (in.flag(key, false)) in.fail(formatted("'{}' is not supported; an encoder is supported", key));
  const std::string positions = in.text("position_embedding_type", "absolute");
  if (positions != "absolute")
    in.fail(formatted("position_embedding_type '{}' is not supported; supported: absolute", positions));
}

void parse_sizes(const ConfigReader& in, const EncoderFacts& facts, ModelSpec& spec) {
  spec.hidden = in.integer("hidden_size", 1, kWidest, 768);
  spec.mlp_width = in.integer("intermediate_size", 1, kWidest, 3072);
  spec.layers = in.integer("num_hidden_layers", 1, kMostLayers, 12);
  spec.heads = spec.kv_heads = in.integer("num_attention_heads", 1, kWidest, 12);
  spec.vocab = in.integer("vocab_size", 1, kLargestVocab, facts.vocab);
  if (spec.hidden % spec.heads != 0) in.fail("'hidden_size' must be a multiple of 'num_attention_heads'");
  spec.head_dim = spec.hidden / spec.heads;
  if (spec.head_dim % 8 != 0 || spec.head_dim > 256)
    in.fail(
        formatted("a head size of {} is not supported; supported: multiples of 8 up to 256", spec.head_dim));
  spec.windows.assign(static_cast<size_t>(spec.layers), 0);
  spec.rope.type = RopeType::none;
}

void parse(const ConfigReader& in, const EncoderFacts& facts, ModelSpec& spec) {
  refuse_unsupported(in);
  parse_sizes(in, facts, spec);
  EncoderSpec& encoder = spec.encoder.emplace();
  encoder.activation = activation_of(in);
  encoder.token_types = in.integer("type_vocab_size", 1, kWidest, 2);
  encoder.position_rows = in.integer("max_position_embeddings", 1, kLargestVocab, 512);
  encoder.counts_from_padding = facts.counts_from_padding;
  encoder.layer_norm_eps = in.number("layer_norm_eps", 1e-12, 0.0, 1.0);
  encoder.dropout = in.number("hidden_dropout_prob", 0.1, 0.0, 0.99);
  encoder.attention_dropout = in.number("attention_probs_dropout_prob", 0.1, 0.0, 0.99);
  encoder.head_dropout = in.number("classifier_dropout", encoder.dropout, 0.0, 0.99);
  spec.initializer_range = in.number("initializer_range", 0.02, 0.0, 1000.0);
  spec.pad_token = in.integer("pad_token_id", 0, spec.vocab - 1, facts.padding);
  spec.tied_head = in.flag("tie_word_embeddings", true);
  const int64_t before = encoder.counts_from_padding ? *spec.pad_token + 1 : 0;
  spec.max_positions = encoder.position_rows - before;
  if (spec.max_positions < 1)
    in.fail(formatted("'max_position_embeddings' is {}, but positions begin at {} (pad_token_id plus 1)",
                      encoder.position_rows, before));
}

void parse_bert(const ConfigReader& in, ModelSpec& spec) {
  parse(in, {}, spec);
  spec.encoder->pooler = "bert.pooler.dense";
  spec.encoder->words_layer = "cls.predictions.transform.dense";
}
void parse_roberta(const ConfigReader& in, ModelSpec& spec) {
  parse(in, {.vocab = 50265, .padding = 1, .counts_from_padding = true}, spec);
  spec.encoder->words_layer = "lm_head.dense";
}

void inputs(ModelBuilder& b) {
  b.token_inputs(kFirstAxis, b.shape().tokens);
  b.input("token_type_ids", {b.shape().tokens}, DType::i32);
  if (b.spec().encoder->counts_from_padding) b.input("position_ids", {b.shape().tokens}, DType::i32);
}

TensorId activated(ModelBuilder& b, EncoderSpec::Activation activation, TensorId x,
                   const std::string& scope) {
  if (activation == EncoderSpec::Activation::relu) return b.op1(OpKind::relu, {x}, {}, scope, scope + ".act");
  const bool by_tanh = activation == EncoderSpec::Activation::gelu_tanh;
  return b.op1(OpKind::gelu, {x}, {{"approximate", std::string(by_tanh ? "tanh" : "none")}}, scope,
               scope + ".act");
}

// h_TH is [tokens, hidden].
class Encoder {
 public:
  explicit Encoder(ModelBuilder& builder)
      : b_(builder), spec_(builder.spec()), encoder_(*builder.spec().encoder), base_(base_of(spec_)) {}

  TensorId hidden() {
    TensorId h_TH = embeddings();
    for (int64_t i = 0; i < spec_.layers; ++i) h_TH = layer(h_TH, i);
    return h_TH;
  }

 private:
  TensorId looked_up(const char* ids, const std::string& scope, int64_t rows) {
    const TensorId table = b_.parameter(scope + ".weight", {rows, spec_.hidden}, kEmbedding);
    return b_.op1(OpKind::embedding, {b_.input_named(ids), table, b_.step()}, {}, scope, scope + ".out");
  }

  TensorId embeddings() {
    const std::string scope = base_ + ".embeddings";
    const char* position_ids = encoder_.counts_from_padding ? "position_ids" : "positions";
    const std::string words_scope = scope + ".word_embeddings";
    const TensorId table = b_.parameter(words_scope + ".weight", {spec_.vocab, spec_.hidden}, kEmbedding);
    const TensorId words = b_.embedded(b_.input_named("input_ids"), table, words_scope);
    const TensorId types =
        looked_up("token_type_ids", scope + ".token_type_embeddings", encoder_.token_types);
    const TensorId typed = b_.op1(OpKind::add, {words, types}, {}, scope, scope + ".typed");
    const TensorId places = looked_up(position_ids, scope + ".position_embeddings", encoder_.position_rows);
    return normed_sum(typed, places, scope);
  }

  TensorId normed(TensorId x, const std::string& scope) {
    return b_.layer_norm(x, scope + ".LayerNorm", spec_.hidden, encoder_.layer_norm_eps);
  }
  TensorId normed_sum(TensorId typed, TensorId places, const std::string& scope) {
    const TensorId sum = b_.op1(OpKind::add, {typed, places}, {}, scope, scope + ".sum");
    return b_.dropout(normed(sum, scope), encoder_.dropout, scope + ".dropout");
  }

  // A product's output, dropped out, added to the product's input.
  TensorId output(TensorId x, int64_t width, TensorId beside, const std::string& scope) {
    const TensorId made = b_.linear(x, scope + ".dense", width, spec_.hidden, true);
    const TensorId kept = b_.dropout(made, encoder_.dropout, scope + ".dropout");
    return normed(b_.op1(OpKind::add, {kept, beside}, {}, scope, scope + ".sum"), scope);
  }

  // q of the first token alone, in the layer that scores are made of.
  TensorId attention(TensorId h_TH, const std::string& scope, bool decides) {
    const auto projected = [&](TensorId x, const char* which) {
      return b_.linear(x, scope + which, spec_.hidden, spec_.hidden, true);
    };
    TensorId q = decides ? kNoTensor : projected(h_TH, ".query");
    const TensorId k = projected(h_TH, ".key"), v = projected(h_TH, ".value");
    Attrs attrs{{"head_dim", spec_.head_dim},
                {"window", int64_t{0}},
                {"causal", int64_t{0}},
                {"length", b_.shape().length}};
    TensorId key_starts = kNoTensor;
    if (decides) {
      q = projected(b_.deciding(h_TH, scope, scope + ".q_in"), ".query");
      key_starts = b_.attend_to_sequences(attrs);
    }
    Operands operands = {q, k, v, b_.input_named("seq_starts"), b_.step()};
    if (decides) operands.push_back(key_starts);
    if (b_.mode() == Mode::train && encoder_.attention_dropout > 0) {
      attrs["dropout"] = encoder_.attention_dropout;
      operands.resize(operand::attention::samples, kNoTensor);  // by these and positions dropout draws
      for (const char* of : {"samples", "positions"}) operands.push_back(b_.input_named(of));
    }
    return b_.op(OpKind::attention, std::move(operands), std::move(attrs), {kNewTensor, kNewTensor}, scope,
                 scope + ".mix")[0];
  }

  TensorId layer(TensorId h_TH, int64_t index) {
    const std::string scope = formatted("{}.encoder.layer.{}", base_, index);
    b_.begin_block(scope, "layer");
    const bool decides = b_.decides(index, spec_.layers);
    const TensorId mixed = attention(h_TH, scope + ".attention.self", decides);
    if (decides) h_TH = b_.deciding(h_TH, scope, scope + ".h_in");
    const TensorId h1 = output(mixed, spec_.hidden, h_TH, scope + ".attention.output");
    const TensorId x_TM = b_.linear(h1, scope + ".intermediate.dense", spec_.hidden, spec_.mlp_width, true);
    const TensorId h2 = output(activated(b_, encoder_.activation, x_TM, scope + ".intermediate"),
                               spec_.mlp_width, h1, scope + ".output");
    b_.end_block();
    return h2;
  }

  ModelBuilder& b_;
  const ModelSpec& spec_;
  const EncoderSpec& encoder_;
  std::string base_;
};

TensorId hidden(ModelBuilder& b) { return Encoder(b).hidden(); }

TensorId bert_pooler(ModelBuilder& b, TensorId x_BH) {
  const EncoderSpec& encoder = *b.spec().encoder;
  const TensorId pooled = b.dense_and_tanh(x_BH, encoder.pooler, encoder.fresh_pooler);
  return b.dropout(pooled, encoder.head_dropout, "dropout");
}

// The head has a layer of its own instead of a pooler.
TensorId roberta_head(ModelBuilder& b, TensorId x_BH) {
  const double dropout = b.spec().encoder->head_dropout;
  const TensorId dropped = b.dropout(x_BH, dropout, "classifier.dropout");
  return b.dropout(b.dense_and_tanh(dropped, "classifier.dense", true), dropout, "classifier.dense.dropout");
}

// A layer and a norm before the head for masked words.
TensorId before_words(ModelBuilder& b, TensorId h_TH, EncoderSpec::Activation activation,
                      const std::string& norm) {
  const EncoderSpec& encoder = *b.spec().encoder;
  const std::string& layer = encoder.words_layer;
  const int64_t hidden = b.spec().hidden;
  const bool fresh = encoder.fresh_words;
  b.parameter(layer + ".weight", {hidden, hidden}, fresh ? kScoreHead : kMatrix);
  b.parameter(layer + ".bias", {hidden}, fresh ? kScoreBias : kBias);
  const TensorId act = activated(b, activation, b.linear(h_TH, layer, hidden, hidden, true), layer);
  ParameterInfo facts = kNorm;
  if (fresh) facts.origin = Origin::fresh;
  b.parameter(norm + ".weight", {hidden}, facts);
  b.parameter(norm + ".bias", {hidden}, fresh ? kScoreBias : kBias);
  return b.layer_norm(act, norm, hidden, encoder.layer_norm_eps);
}
TensorId bert_words(ModelBuilder& b, TensorId h_TH) {
  return before_words(b, h_TH, b.spec().encoder->activation, "cls.predictions.transform.LayerNorm");
}
// Its activation is gelu, whatever that of the layers below is.
TensorId roberta_words(ModelBuilder& b, TensorId h_TH) {
  return before_words(b, h_TH, EncoderSpec::Activation::gelu, "lm_head.layer_norm");
}

constexpr FamilyRule roberta_like(std::string_view model_type, std::string_view architecture,
                                  std::string_view also_read) {
  return {.model_type = model_type,
          .architecture = architecture,
          .embedding = "roberta.embeddings.word_embeddings",
          .parse = parse_roberta,
          .inputs = inputs,
          .hidden = hidden,
          .final_norm = roberta_head,
          .score = "classifier.out_proj",
          .score_bias = true,
          .words_input = roberta_words,
          .words_module = "lm_head.decoder",
          .words_bias = "lm_head.bias",
          .also_read = {also_read}};
}

}  // namespace

const FamilyRule bert_family{.model_type = "bert",
                             .architecture = "BertForMaskedLM",
                             .embedding = "bert.embeddings.word_embeddings",
                             .parse = parse_bert,
                             .inputs = inputs,
                             .hidden = hidden,
                             .final_norm = bert_pooler,
                             .score = "classifier",
                             .score_bias = true,
                             .words_input = bert_words,
                             .words_module = "cls.predictions.decoder",
                             .words_bias = "cls.predictions.bias",
                             .also_read = {"BertModel", "BertForPreTraining"}};
const FamilyRule roberta_family = roberta_like("roberta", "RobertaForMaskedLM", "RobertaModel");
const FamilyRule xlm_roberta_family = roberta_like("xlm-roberta", "XLMRobertaForMaskedLM", "XLMRobertaModel");

}  // namespace plimsoll
