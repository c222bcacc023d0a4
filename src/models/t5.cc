// T5 and mT5: an encoder over the first axis, a decoder over a second one, relative position biases by
// distance, no scaling of scores, no biases. Names and places of dropout as in transformers' modeling_t5.py.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "graph/op_kind.h"
#include "models/family.h"

namespace plimsoll {
namespace {

// A table by distance is an embedding in a module whose name holds "bias": Hugging Face's Trainer does not
// decay it.
constexpr ParameterInfo kDistances{.decays = false};
constexpr AxisId kDecoderAxis = 1;

void parse_sizes(const ConfigReader& in, ModelSpec& spec) {
  spec.hidden = in.integer("d_model", 1, kWidest);
  spec.mlp_width = in.integer("d_ff", 1, kWidest);
  spec.heads = spec.kv_heads = in.integer("num_heads", 1, kWidest);
  spec.head_dim = in.integer("d_kv", 1, 256, 64);
  spec.vocab = in.integer("vocab_size", 1, kLargestVocab);
  if (spec.head_dim % 8 != 0)
    in.fail(
        formatted("a head size of {} is not supported; supported: multiples of 8 up to 256", spec.head_dim));
  EncoderDecoderSpec& two = spec.encoder_decoder.emplace();
  two.encoder_layers = in.integer("num_layers", 1, kMostLayers);
  two.decoder_layers = in.integer("num_decoder_layers", 1, kMostLayers, two.encoder_layers);
  spec.layers = two.encoder_layers + two.decoder_layers;
  spec.windows.assign(static_cast<size_t>(spec.layers), 0);
  two.relative_buckets = in.integer("relative_attention_num_buckets", 4, 1 << 16, 32);
  two.relative_distance = in.integer("relative_attention_max_distance", 2, kMostPositions, 128);
  if (two.relative_buckets % 4 != 0 || two.relative_distance <= two.relative_buckets / 2)
    in.fail(
        "'relative_attention_num_buckets' must be a multiple of 4 below twice "
        "'relative_attention_max_distance'");
}

// transformers computes by these keys, which it writes next to feed_forward_proj and derives from it where
// they are absent.
void require_activation(const ConfigReader& in, bool gated) {
  const std::string act = gated ? "gelu_new" : "relu";
  if (in.names("dense_act_fn") && in.text("dense_act_fn", "null") != act)
    in.fail(formatted("'dense_act_fn' is {}; this feed_forward_proj needs '{}'", in.at("dense_act_fn").dump(),
                      act));
  if (in.names("is_gated_act") && in.flag("is_gated_act", false) != gated)
    in.fail(
        formatted("'is_gated_act' is {}, which contradicts feed_forward_proj", in.at("is_gated_act").dump()));
}

void parse(const ConfigReader& in, const char* usual_mlp, ModelSpec& spec) {
  parse_sizes(in, spec);
  EncoderDecoderSpec& two = *spec.encoder_decoder;
  two.dropout = in.number("dropout_rate", 0.1, 0.0, 0.99);
  const std::string mlp = in.text("feed_forward_proj", usual_mlp);
  if (mlp != "relu" && mlp != "gated-gelu")
    in.fail(formatted("feed_forward_proj '{}' is not supported; supported: relu, gated-gelu", mlp));
  two.gated = mlp == "gated-gelu";
  require_activation(in, two.gated);
  spec.tied_head = in.flag("tie_word_embeddings", true);
  two.pad_token = in.integer("pad_token_id", 0, spec.vocab - 1, 0);
  two.start_token = in.integer("decoder_start_token_id", 0, spec.vocab - 1, two.pad_token);
  // A list of such tokens is for generation.
  if (in.has("eos_token_id") && in.at("eos_token_id").is_number())
    two.end_token = in.integer("eos_token_id", 0, spec.vocab - 1);
  two.head_dropout = in.number("classifier_dropout", 0.0, 0.0, 0.99);
  spec.rms_norm_eps = in.number("layer_norm_epsilon", 1e-6, 0.0, 1.0);
  spec.rope.type = RopeType::none;
  spec.max_positions = kMostPositions;  // distances have no end
  spec.initializer_range =
      in.number("initializer_factor", 1.0, 0.0, 1000.0) / std::sqrt(static_cast<double>(spec.hidden));
}

// transformers 5 writes what earlier ones read out of tie_word_embeddings.
void parse_t5(const ConfigReader& in, ModelSpec& spec) {
  parse(in, "relu", spec);
  const bool otherwise =
      !in.names("scale_decoder_outputs") && spec.tied_head;  // null is false to transformers
  spec.encoder_decoder->scales_head = in.flag("scale_decoder_outputs", otherwise);
}

void parse_mt5(const ConfigReader& in, ModelSpec& spec) { parse(in, "gated-gelu", spec); }

// Leaves the builder on the decoder's axis, whose labels are trained.
void inputs(ModelBuilder& b) {
  b.token_inputs(kFirstAxis, b.shape().tokens);
  const AxisId decoder = b.graph().add_axis("decoder");
  b.token_inputs(decoder, b.shape().target_tokens);
  b.set_axis(decoder);
}

// One of the two stacks, on the axis at hand.
class Stack {
 public:
  Stack(ModelBuilder& builder, std::string name, int64_t layers)
      : b_(builder),
        spec_(builder.spec()),
        two_(*builder.spec().encoder_decoder),
        name_(std::move(name)),
        layers_(layers) {
    decodes_ = b_.axis() != kFirstAxis;
    distances_ = b_.parameter(name_ + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                              {two_.relative_buckets, spec_.heads}, kDistances);
  }

  // `encoded`: what the encoder made of the first axis, for the decoder.
  TensorId hidden(TensorId encoded) {
    const TensorId table = b_.embedding_table();
    TensorId h_TH = b_.op1(OpKind::embedding, {b_.input_named("input_ids"), table, b_.step()}, {},
                           name_ + ".embed_tokens", name_ + ".embed_tokens.out");
    h_TH = dropout(h_TH, name_ + ".embed_dropout");
    for (int64_t i = 0; i < layers_; ++i) h_TH = layer(h_TH, encoded, i);
    return h_TH;
  }
  // Caches the decoder's part, on the encoder's axis: what its layers read of the source.
  void cache_source(TensorId encoded) {
    for (int64_t i = 0; i < layers_; ++i) {
      const std::string block = begin_block(i);
      const std::string scope = block + ".layer.1.EncDecAttention";
      for (const char* which : {".k", ".v"})
        b_.linear_into(encoded_cache(scope, which), encoded, scope + which, spec_.hidden);
      b_.end_block();
    }
  }
  TensorId final_norm(TensorId h) {
    return dropout(b_.norm(h, name_ + ".final_layer_norm", spec_.hidden), name_ + ".final_dropout");
  }

 private:
  TensorId dropout(TensorId x, const std::string& scope) { return b_.dropout(x, two_.dropout, scope); }

  [[nodiscard]] Attrs attention_attributes() const {
    Attrs attrs{{"head_dim", spec_.head_dim}, {"window", int64_t{0}}, {"scale", 1.0}};
    attrs["length"] = decodes_ ? b_.shape().target_length : b_.shape().length;
    if (b_.mode() == Mode::train && two_.dropout > 0) attrs["dropout"] = two_.dropout;
    return attrs;
  }

  TensorId projected(TensorId x, const std::string& scope) {
    return b_.linear(x, scope, spec_.hidden, spec_.heads * spec_.head_dim, false);
  }

  TensorId attention(const std::string& scope, TensorId q, TensorId k, TensorId v, Attrs attrs,
                     TensorId key_starts, TensorId distances) {
    Operands operands = {q, k, v, b_.input_named("seq_starts"), b_.step(), key_starts, distances};
    if (attrs.contains("dropout")) {
      operands.push_back(b_.input_named("samples"));
      operands.push_back(b_.input_named("positions"));
    } else if (distances == kNoTensor) {
      operands.pop_back();
    }
    return out(b_.op(OpKind::attention, std::move(operands), std::move(attrs), {kNewTensor, kNewTensor},
                     scope, scope + ".mix")[0],
               scope);
  }

  TensorId out(TensorId mixed, const std::string& scope) {
    return b_.linear(mixed, scope + ".o", spec_.heads * spec_.head_dim, spec_.hidden, false);
  }

  TensorId self_attention(TensorId n_TH, const std::string& scope) {
    Attrs attrs = attention_attributes();
    if (!decodes_) attrs["causal"] = int64_t{0};
    attrs["max_distance"] = two_.relative_distance;
    const TensorId q = projected(n_TH, scope + ".q");
    const TensorId k = projected(n_TH, scope + ".k");
    const TensorId v = projected(n_TH, scope + ".v");
    if (decodes_ && b_.cache().capacity > 0)
      return out(b_.cached_attention(q, k, v, std::move(attrs), distances_, scope, scope + ".mix"), scope);
    return attention(scope, q, k, v, std::move(attrs), kNoTensor, distances_);
  }

  // Keys and values are rows of the encoder's axis.
  TensorId cross_attention(TensorId n_TH, TensorId encoded, const std::string& scope) {
    Attrs attrs = attention_attributes();
    attrs["causal"] = int64_t{0};
    attrs["keys_of"] = int64_t{kFirstAxis};
    attrs["key_length"] = b_.shape().length;
    const TensorId q = projected(n_TH, scope + ".q");
    if (b_.cache().capacity > 0) {
      attrs["length"] = b_.shape().length;
      const Operands operands = {q, encoded_cache(scope, ".k"), encoded_cache(scope, ".v"), b_.step()};
      return out(b_.op1(OpKind::attention_cached, operands, std::move(attrs), scope, scope + ".mix"), scope);
    }
    b_.set_axis(kFirstAxis);
    const TensorId k = projected(encoded, scope + ".k");
    const TensorId v = projected(encoded, scope + ".v");
    const TensorId starts = b_.input_named("seq_starts");
    b_.set_axis(kDecoderAxis);
    return attention(scope, q, k, v, std::move(attrs), starts, kNoTensor);
  }

  // Keys or values of the source, for one layer.
  TensorId encoded_cache(const std::string& scope, const char* which) {
    return b_.cache_tensor(formatted("{}{}_cache", scope, which), b_.shape().tokens,
                           spec_.heads * spec_.head_dim);
  }

  TensorId mlp(TensorId n_TH, const std::string& scope) {
    TensorId s_TM = kNoTensor;
    if (two_.gated) {
      const TensorId gate = b_.linear(n_TH, scope + ".wi_0", spec_.hidden, spec_.mlp_width, false);
      const TensorId up = b_.linear(n_TH, scope + ".wi_1", spec_.hidden, spec_.mlp_width, false);
      s_TM = b_.op1(OpKind::geglu, {gate, up}, {}, scope, scope + ".act");
    } else {
      const TensorId x = b_.linear(n_TH, scope + ".wi", spec_.hidden, spec_.mlp_width, false);
      s_TM = b_.op1(OpKind::relu, {x}, {}, scope, scope + ".act");
    }
    return b_.linear(dropout(s_TM, scope + ".dropout"), scope + ".wo", spec_.mlp_width, spec_.hidden, false);
  }

  TensorId added(TensorId h, TensorId made, const std::string& scope) {
    return b_.op1(OpKind::add, {h, dropout(made, scope + ".dropout")}, {}, scope, scope + ".h");
  }

  std::string begin_block(int64_t index) {
    std::string block = formatted("{}.block.{}", name_, index);
    b_.begin_block(block, decodes_ ? "decoder layer" : "encoder layer");
    return block;
  }

  TensorId layer(TensorId h_TH, TensorId encoded, int64_t index) {
    const std::string block = begin_block(index);
    int part = 0;
    const auto next = [&] { return formatted("{}.layer.{}", block, part++); };
    const auto normed = [&](const std::string& scope) {
      return b_.norm(h_TH, scope + ".layer_norm", spec_.hidden);
    };
    std::string scope = next();
    h_TH = added(h_TH, self_attention(normed(scope), scope + ".SelfAttention"), scope);
    if (decodes_) {
      scope = next();
      h_TH = added(h_TH, cross_attention(normed(scope), encoded, scope + ".EncDecAttention"), scope);
    }
    scope = next();
    h_TH = added(h_TH, mlp(normed(scope), scope + ".DenseReluDense"), scope);
    b_.end_block();
    return h_TH;
  }

  ModelBuilder& b_;
  const ModelSpec& spec_;
  const EncoderDecoderSpec& two_;
  std::string name_;
  int64_t layers_;
  bool decodes_ = false;
  TensorId distances_ = kNoTensor;
};

TensorId encoded_source(ModelBuilder& b) {
  b.set_axis(kFirstAxis);
  Stack encoder(b, b.prefix() + "encoder", b.spec().encoder_decoder->encoder_layers);
  return encoder.final_norm(encoder.hidden(kNoTensor));
}

Stack decoder_of(ModelBuilder& b) {
  b.set_axis(kDecoderAxis);
  return {b, b.prefix() + "decoder", b.spec().encoder_decoder->decoder_layers};
}

// Generation finds cached what the encoder made.
TensorId hidden(ModelBuilder& b) {
  const TensorId encoded = b.cache().capacity > 0 ? kNoTensor : encoded_source(b);
  const TensorId h_TH = decoder_of(b).hidden(encoded);
  return b.scores() ? b.deciding(h_TH, "decoder", "decoder.scored") : h_TH;
}

void encode(ModelBuilder& b) {
  const TensorId encoded = encoded_source(b);
  Stack decoder = decoder_of(b);
  b.set_axis(kFirstAxis);
  decoder.cache_source(encoded);
}

// On the builder's axis: rows of the decoder, or those of it that decide.
TensorId final_norm(ModelBuilder& b, TensorId h) {
  const EncoderDecoderSpec& two = *b.spec().encoder_decoder;
  const TensorId x = Stack(b, b.prefix() + "decoder", two.decoder_layers).final_norm(h);
  if (!two.scales_head) return x;
  return b.op1(OpKind::scale, {x}, {{"factor", 1.0 / std::sqrt(static_cast<double>(b.spec().hidden))}},
               "decoder", "decoder.scaled");
}

// T5ForSequenceClassification's head: the decoder reads the text again, and its last state is scored.
TensorId score_input(ModelBuilder& b, TensorId x_BH) {
  const EncoderDecoderSpec& two = *b.spec().encoder_decoder;
  const std::string decoder = b.prefix() + "decoder", head = "classification_head";
  TensorId x = b.norm(x_BH, decoder + ".final_layer_norm", b.spec().hidden);
  x = b.dropout(x, two.dropout, decoder + ".final_dropout");
  x = b.dropout(x, two.head_dropout, head + ".dropout");
  return b.dropout(b.dense_and_tanh(x, head + ".dense", true), two.head_dropout, head + ".dense.dropout");
}

constexpr FamilyRule t5_like(std::string_view model_type, std::string_view architecture,
                             decltype(FamilyRule::parse) parse) {
  return {.model_type = model_type,
          .architecture = architecture,
          .embedding = "shared",
          .parse = parse,
          .inputs = inputs,
          .hidden = hidden,
          .final_norm = final_norm,
          .encode = encode,
          .score = "classification_head.out_proj",
          .score_bias = true,
          .score_input = score_input,
          .score_prefix = "transformer.",
          .unquantised = "wo"};
}

}  // namespace

const FamilyRule t5_family = t5_like("t5", "T5ForConditionalGeneration", parse_t5);
const FamilyRule mt5_family = t5_like("mt5", "MT5ForConditionalGeneration", parse_mt5);

}  // namespace plimsoll
