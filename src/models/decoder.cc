#include "models/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "ops/rule.h"
#include "ops/step_values.h"

namespace plimsoll {
namespace {

// Biases and norm weights do not decay, as Hugging Face's Trainer has it.
constexpr ParameterInfo kMatrix;
constexpr ParameterInfo kNorm{.init = Initialiser::ones, .decays = false};
constexpr ParameterInfo kBias{.init = Initialiser::zeros, .decays = false};
constexpr ParameterInfo kEmbedding{.part = WeightPart::embedding};
constexpr ParameterInfo kHead{.part = WeightPart::head};
constexpr ParameterInfo kScoreHead{.origin = Origin::fresh, .part = WeightPart::head};

// Builds one forward graph. Shapes in names: h_TH is [tokens, hidden].
class DecoderBuilder {
 public:
  DecoderBuilder(const ModelSpec& spec, const BatchShape& shape, DType dtype, std::string graph_name)
      : spec_(spec), shape_(shape), dtype_(dtype), graph_(std::move(graph_name)) {
    ids_ = input("input_ids", {shape.tokens}, DType::i32);
    positions_ = input("positions", {shape.tokens}, DType::i32);
    samples_ = input("samples", {shape.tokens}, DType::i32);
    starts_ = input("seq_starts", {shape.sequences + 1}, DType::i32);
    frequencies_ = input("inv_freq", {shape.sequences, spec.head_dim / 2 + 1}, DType::f32);
    step_ = input(kStepTensor, {kNumStepValues}, DType::f64);
  }

  TensorId input(const std::string& name, Shape shape, DType dtype) {
    return graph_.add_tensor({name, std::move(shape), dtype, Role::input});
  }
  TensorId parameter(const std::string& name, Shape shape, const ParameterInfo& facts = kMatrix) {
    const TensorId existing = graph_.find(name);
    if (existing != kNoTensor) return existing;
    return graph_.add_tensor(
        {name, std::move(shape), dtype_, Role::frozen_weight, Space::device, block_, facts});
  }
  Operands op(OpKind kind, Operands inputs, Attrs attrs, Operands outputs, const std::string& scope,
              const std::string& name) {
    Op made;
    made.kind = kind;
    made.inputs = std::move(inputs);
    made.outputs = std::move(outputs);
    made.attrs = std::move(attrs);
    made.scope = scope;
    made.block = block_;
    made.axis = axis_;
    return emit(graph_, std::move(made), name);
  }
  TensorId op1(OpKind kind, Operands inputs, Attrs attrs, const std::string& scope, const std::string& name) {
    return op(kind, std::move(inputs), std::move(attrs), {kNewTensor}, scope, name)[0];
  }

  // Turns ids into the hidden states after the last layer, before the final norm.
  TensorId backbone(int64_t cache_capacity) {
    const TensorId table = embedding_table();
    table_TD_ = op1(OpKind::rope_table, {positions_, starts_, frequencies_, step_}, {}, "model.rotary_emb",
                    "model.rotary_emb.table");
    TensorId h_TH =
        op1(OpKind::embedding, {ids_, table, step_}, {}, "model.embed_tokens", "model.embed_tokens.out");
    for (int64_t i = 0; i < spec_.layers; ++i) h_TH = layer(h_TH, i, cache_capacity);
    return h_TH;
  }
  TensorId norm(TensorId x, const std::string& scope, int64_t width) {
    const TensorId weight = parameter(scope + ".weight", {width}, kNorm);
    return op(OpKind::rms_norm, {x, weight}, {{"eps", spec_.rms_norm_eps}}, {kNewTensor, kNewTensor}, scope,
              scope + ".out")[0];
  }
  TensorId embedding_table() {
    return parameter("model.embed_tokens.weight", {spec_.vocab, spec_.hidden}, kEmbedding);
  }
  TensorId head() {
    if (spec_.scores_sequences)
      throw UsageError(
          "the model is a " + spec_.architecture +
          ", whose head scores sequences: it has none for next tokens. It is for task: reward and classify");
    return spec_.tied_head ? embedding_table()
                           : parameter("lm_head.weight", {spec_.vocab, spec_.hidden}, kHead);
  }
  TensorId final_norm(TensorId h) { return norm(h, "model.norm", spec_.hidden); }
  // The rows of x [T, H] that are scored; what follows has a row for each sequence.
  TensorId last_rows(TensorId x_TH) {
    axis_ = graph_.add_axis(kSequenceAxisName);
    check_internal(axis_ == kSequenceAxis, "a program that scores sequences has one token axis");
    const TensorId rows = input(graph_.axis_input(axis_, "last_rows"), {shape_.sequences}, DType::i32);
    return op1(OpKind::gather_rows, {x_TH, rows}, {{"rows_of", int64_t{kFirstAxis}}}, "model.norm",
               "model.norm.in");
  }
  TensorId scores(TensorId x_BH, int64_t outputs, TensorId to) {
    const TensorId weight = parameter("score.weight", {outputs, spec_.hidden}, kScoreHead);
    return op(OpKind::linear, {x_BH, weight, kNoTensor, kNoTensor, step_}, {{"scale", 1.0}}, {to}, "score",
              "score.out")[0];
  }
  [[nodiscard]] TensorId step() const { return step_; }
  Graph& graph() { return graph_; }

 private:
  TensorId linear(TensorId x, const std::string& scope, int64_t in, int64_t out, bool bias) {
    const TensorId weight = parameter(scope + ".weight", {out, in});
    const TensorId bias_tensor = bias ? parameter(scope + ".bias", {out}, kBias) : kNoTensor;
    return op1(OpKind::linear, {x, weight, bias_tensor, kNoTensor, step_}, {{"scale", 1.0}}, scope,
               scope + ".out");
  }

  // A projection to heads, normalised per head (Qwen3) and rotated.
  TensorId rotated(TensorId n_TH, const std::string& attn, const std::string& which, int64_t heads) {
    const std::string scope = attn + "." + which + "_proj";
    TensorId x = linear(n_TH, scope, spec_.hidden, heads * spec_.head_dim, spec_.qkv_bias);
    if (spec_.qk_norm) x = norm(x, attn + "." + which + "_norm", spec_.head_dim);
    return op1(OpKind::rope, {x, table_TD_}, {{"inverse", int64_t{0}}}, attn, attn + "." + which + "_rope");
  }

  TensorId attention(TensorId n_TH, const std::string& attn, int64_t index, int64_t cache_capacity) {
    const int64_t kv_width = spec_.kv_heads * spec_.head_dim;
    const TensorId q = rotated(n_TH, attn, "q", spec_.heads);
    const TensorId k = rotated(n_TH, attn, "k", spec_.kv_heads);
    const TensorId v = linear(n_TH, attn + ".v_proj", spec_.hidden, kv_width, spec_.qkv_bias);
    Attrs attrs{{"head_dim", spec_.head_dim}, {"window", spec_.windows[static_cast<size_t>(index)]}};
    TensorId o = kNoTensor;
    if (cache_capacity > 0) {
      attrs["capacity"] = cache_capacity;
      attrs["length"] = cache_capacity;
      const auto cache = [&](const char* name) {
        return graph_.add_tensor(
            {attn + name, {cache_capacity, kv_width}, dtype_, Role::kv_cache, Space::device, block_});
      };
      const TensorId k_cache = cache(".k_cache");
      const TensorId v_cache = cache(".v_cache");
      o = op(OpKind::attention_cached, {q, k, v, step_}, attrs, {kNewTensor, k_cache, v_cache}, attn,
             attn + ".o")[0];
    } else {
      attrs["length"] = shape_.length;
      o = op(OpKind::attention, {q, k, v, starts_, step_}, attrs, {kNewTensor, kNewTensor}, attn,
             attn + ".o")[0];
    }
    return linear(o, attn + ".o_proj", spec_.heads * spec_.head_dim, spec_.hidden, spec_.o_bias);
  }

  TensorId mlp(TensorId n_TH, const std::string& scope) {
    const TensorId gate = linear(n_TH, scope + ".gate_proj", spec_.hidden, spec_.mlp_width, spec_.mlp_bias);
    const TensorId up = linear(n_TH, scope + ".up_proj", spec_.hidden, spec_.mlp_width, spec_.mlp_bias);
    const TensorId s_TM = op1(OpKind::swiglu, {gate, up}, {}, scope, scope + ".act");
    return linear(s_TM, scope + ".down_proj", spec_.mlp_width, spec_.hidden, spec_.mlp_bias);
  }

  TensorId layer(TensorId h_TH, int64_t index, int64_t cache_capacity) {
    const std::string scope = "model.layers." + std::to_string(index);
    block_ = graph_.add_block({scope, "layer"});
    const TensorId n1 = norm(h_TH, scope + ".input_layernorm", spec_.hidden);
    const TensorId a = attention(n1, scope + ".self_attn", index, cache_capacity);
    const TensorId h2 = op1(OpKind::add, {h_TH, a}, {}, scope, scope + ".h_attn");
    const TensorId n2 = norm(h2, scope + ".post_attention_layernorm", spec_.hidden);
    const TensorId m = mlp(n2, scope + ".mlp");
    const TensorId h3 = op1(OpKind::add, {h2, m}, {}, scope, scope + ".h");
    block_ = kNoBlock;
    return h3;
  }

  const ModelSpec& spec_;
  BatchShape shape_;
  DType dtype_;
  Graph graph_;
  BlockId block_ = kNoBlock;  // of what is being built
  AxisId axis_ = kFirstAxis;  // likewise
  TensorId ids_ = kNoTensor, positions_ = kNoTensor, samples_ = kNoTensor, starts_ = kNoTensor,
           frequencies_ = kNoTensor, step_ = kNoTensor, table_TD_ = kNoTensor;
};

}  // namespace

Graph build_decoder_loss(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t chunk,
                         const std::string& loss_name) {
  DecoderBuilder b(spec, shape, dtype, "loss");
  const TensorId labels = b.input("labels", {shape.tokens}, DType::i32);
  const TensorId loss = b.graph().add_tensor({loss_name, {2}, DType::f64, Role::metric});
  const TensorId x_TH = b.final_norm(b.backbone(0));
  b.op(OpKind::linear_cross_entropy, {x_TH, b.head(), labels, b.step()}, {{"chunk", chunk}}, {loss},
       "lm_head", "");
  return std::move(b.graph());
}

Graph build_decoder_logits(const ModelSpec& spec, const BatchShape& shape, DType dtype) {
  DecoderBuilder b(spec, shape, dtype, "logits");
  const TensorId logits = b.graph().add_tensor({"logits", {shape.tokens, spec.vocab}, dtype, Role::metric});
  const TensorId x_TH = b.final_norm(b.backbone(0));
  b.op(OpKind::linear, {x_TH, b.head(), kNoTensor, kNoTensor}, {{"scale", 1.0}}, {logits}, "lm_head", "");
  return std::move(b.graph());
}

Graph build_decoder_cached(const ModelSpec& spec, int64_t tokens, int64_t capacity, DType dtype) {
  DecoderBuilder b(spec, {tokens, 1, tokens}, dtype, tokens == 1 ? "decode" : "prefill");
  const TensorId last_row = b.input("last_row", {1}, DType::i32);
  const TensorId logits = b.graph().add_tensor({"logits", {1, spec.vocab}, dtype, Role::metric});
  const TensorId h_TH = b.backbone(capacity);
  const TensorId h_1H = b.op1(OpKind::gather_rows, {h_TH, last_row}, {}, "model.norm", "model.norm.in");
  b.op(OpKind::linear, {b.final_norm(h_1H), b.head(), kNoTensor, kNoTensor}, {{"scale", 1.0}}, {logits},
       "lm_head", "");
  return std::move(b.graph());
}

ScoredGraph build_decoder_scores(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t outputs,
                                 const std::string& scores_name) {
  DecoderBuilder b(spec, shape, dtype, "scores");
  TensorId to = kNewTensor;
  if (!scores_name.empty())
    to = b.graph().add_tensor({scores_name, {shape.sequences, outputs}, dtype, Role::metric});
  const TensorId x_BH = b.last_rows(b.backbone(0));
  const TensorId scores = b.scores(b.final_norm(x_BH), outputs, to);
  return {std::move(b.graph()), scores};
}

int64_t count_parameters(const ModelSpec& spec, int64_t scores) {
  if (scores == 0 && spec.scores_sequences) scores = std::max<int64_t>(spec.labels, 1);
  const Graph graph = scores > 0 ? build_decoder_scores(spec, {1, 1, 1}, DType::f32, scores, "").graph
                                 : build_decoder_loss(spec, {1, 1, 1}, DType::f32, 1, "loss");
  int64_t total = 0;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.role == Role::frozen_weight) total += tensor.shape.elements();
  return total;
}

}  // namespace plimsoll
