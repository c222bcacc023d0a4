#include "models/model.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "models/family.h"
#include "models/parameter_names.h"
#include "models/wrapper.h"
#include "ops/loss/word_scores.h"
#include "ops/operands.h"
#include "ops/step_values.h"

namespace plimsoll {
namespace {

constexpr BatchShape kSmallest = {1, 1, 1, 1, 1};

// Tokens of the text that the model writes.
int64_t text_tokens(const ModelBuilder& b) {
  return b.spec().encoder_decoder ? b.shape().target_tokens : b.shape().tokens;
}

// A graph with the inputs of every program.
ModelBuilder begin(const ModelSpec& spec, const BatchShape& shape, DType dtype, Mode mode, std::string name,
                   const CacheShape& cache = {}) {
  ModelBuilder b(spec, shape, dtype, std::move(name), mode, cache);
  family_of(spec).inputs(b);
  b.input(kStepTensor, {kNumStepValues}, DType::f64);
  return b;
}

// A graph whose head is that for next tokens.
ModelBuilder begin_text(const ModelSpec& spec, const BatchShape& shape, DType dtype, Mode mode,
                        std::string name, const CacheShape& cache = {}) {
  if (spec.encoder)
    throw UsageError(formatted(
        "the model is a {}, an encoder, which does not generate text; use task: mlm, or task: classify and plimsoll "
        "classify",
        spec.architecture));
  return begin(spec, shape, dtype, mode, std::move(name), cache);
}

bool maps_logits(const ModelSpec& spec) { return spec.logit_factor != 1.0 || spec.logit_softcap > 0; }

// Products with the head to logits, in `to`: of the model's factor and below its cap.
void finish_logits(ModelBuilder& b, TensorId products, TensorId to) {
  const ModelSpec& spec = b.spec();
  const auto op = [&](OpKind kind, TensorId x, Attrs attrs, TensorId y, const char* name) {
    return b.op(kind, {x}, std::move(attrs), {y}, "lm_head", name)[0];
  };
  if (spec.logit_softcap == 0) {
    op(OpKind::scale, products, {{"factor", spec.logit_factor}}, to, "");
    return;
  }
  const TensorId inner = op(OpKind::scale, products, {{"factor", spec.logit_factor / spec.logit_softcap}},
                            kNewTensor, "lm_head.inner");
  const TensorId bent = op(OpKind::tanh, inner, {}, kNewTensor, "lm_head.bent");
  op(OpKind::scale, bent, {{"factor", spec.logit_softcap}}, to, "");
}

// The head for words: what it reads, and what is added to its products.
struct WordsHead {
  TensorId x = kNoTensor, weight = kNoTensor, bias = kNoTensor;
  std::string scope = "lm_head";
};

void write_logits(ModelBuilder& b, const WordsHead& head, TensorId to) {
  const bool maps = maps_logits(b.spec());
  const TensorId products =
      b.op(OpKind::linear, {head.x, head.weight, head.bias, kNoTensor}, {{"scale", 1.0}},
           {maps ? kNewTensor : to}, head.scope, head.scope + ".products")[0];
  if (maps) finish_logits(b, products, to);
}

// An encoder's has layers of its own.
WordsHead words_head(ModelBuilder& b, TensorId h_TH) {
  const ModelSpec& spec = b.spec();
  const FamilyRule& family = family_of(spec);
  if (!spec.encoder) {
    const TensorId x = family.final_norm(b, h_TH);
    return {x, b.head()};
  }
  if (!spec.tied_head)
    throw UsageError(formatted(
        "masked language modelling with untied embeddings (tie_word_embeddings: false) is not supported for a {}",
        spec.architecture));
  const ParameterInfo& facts = spec.encoder->fresh_words ? kScoreBias : kBias;
  WordsHead head{
      .x = family.words_input(b, h_TH), .weight = b.head(), .scope = std::string(family.words_module)};
  if (spec.encoder->words_bias) head.bias = b.parameter(std::string(family.words_bias), {spec.vocab}, facts);
  return head;
}

// The same in losses, whose ops do it within their chunks.
Attrs head_attrs(const ModelSpec& spec, int64_t chunk) {
  Attrs attrs{{"chunk", chunk}};
  if (spec.logit_factor != 1.0) attrs["factor"] = spec.logit_factor;
  if (spec.logit_softcap > 0) attrs["softcap"] = spec.logit_softcap;
  return attrs;
}

TensorId score_words(ModelBuilder& b, TensorId x_BH, TensorId to) {
  const bool maps = maps_logits(b.spec());
  const TensorId products =
      b.op(OpKind::word_scores, {x_BH, b.head(), b.step()}, {{"words", words_text(b.spec().words)}},
           {maps ? kNewTensor : to}, "lm_head", maps ? "lm_head.products" : "lm_head.out")[0];
  if (!maps) return products;
  if (to == kNewTensor)
    to = b.graph().add_tensor({"lm_head.out", b.graph().tensor(products).shape, b.dtype(), Role::activation});
  finish_logits(b, products, to);
  return to;
}

TensorId score(ModelBuilder& b, TensorId x_BH, int64_t outputs, TensorId to) {
  const std::string scope = score_module(b.spec());
  const bool value = b.spec().value_head, biased = value || family_of(b.spec()).score_bias;
  if (value) x_BH = b.dropout(x_BH, b.spec().value_dropout, "v_head.dropout");
  const TensorId weight = b.parameter(scope + ".weight", {outputs, b.spec().hidden}, kScoreHead);
  const TensorId bias = biased ? b.parameter(scope + ".bias", {outputs}, kScoreBias) : kNoTensor;
  return b.op(OpKind::linear, {x_BH, weight, bias, kNoTensor, b.step()}, {{"scale", 1.0}}, {to}, scope,
              scope + ".out")[0];
}

}  // namespace

std::string why_no_shared_prefixes(const ModelSpec& spec, int64_t longest) {
  if (!family_of(spec).shares_prefixes) return "has tokens that meet in other ways than causal attention";
  if (spec.rope.type == RopeType::longrope && spec.rope.goes_by_length(longest))
    return formatted("has other rotary frequencies for rows above {} tokens: set data.max_length to that",
                     spec.rope.original_length);
  if (spec.rope.goes_by_length(longest)) return "has rotary frequencies that change with a row's length";
  return {};
}

Graph build_loss(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t chunk, Mode mode,
                 const std::string& loss_name) {
  ModelBuilder b = begin(spec, shape, dtype, mode, "loss");
  const TensorId labels = b.input(b.graph().axis_input(b.axis(), "labels"), {text_tokens(b)}, DType::i32);
  Operands shared;
  if (shape.shares())
    shared = {kNoTensor, kNoTensor, b.input("label_rows", {shape.tokens}, DType::i32),
              b.input("label_weights", {shape.tokens}, DType::f32)};
  const TensorId loss = b.graph().add_tensor({loss_name, {2}, DType::f64, Role::metric});
  const WordsHead head = words_head(b, family_of(spec).hidden(b));
  Operands operands = {head.x, head.weight, labels, b.step()};
  for (const TensorId id : shared) operands.push_back(id);
  if (head.bias != kNoTensor) {
    operands.resize(operand::linear_cross_entropy::bias, kNoTensor);
    operands.push_back(head.bias);
  }
  b.op(OpKind::linear_cross_entropy, std::move(operands), head_attrs(spec, chunk), {loss}, head.scope, "");
  return std::move(b.graph());
}

Graph build_logits(const ModelSpec& spec, const BatchShape& shape, DType dtype) {
  ModelBuilder b = begin(spec, shape, dtype, Mode::evaluate, "logits");
  const TensorId logits = b.graph().add_tensor({"logits", {text_tokens(b), spec.vocab}, dtype, Role::metric});
  write_logits(b, words_head(b, family_of(spec).hidden(b)), logits);
  return std::move(b.graph());
}

namespace {

Graph build_encode(const ModelSpec& spec, const GenerationShape& shape, DType dtype) {
  ModelBuilder b = begin(spec, {shape.source, 1, shape.source, 1, 1}, dtype, Mode::evaluate, "encode",
                         {shape.capacity, shape.sequences, false});
  family_of(spec).encode(b);
  return std::move(b.graph());
}

// `rows`: of the text that is written, in one call.
Graph build_written(const ModelSpec& spec, const GenerationShape& shape, DType dtype, int64_t rows,
                    const char* name, bool apart) {
  BatchShape batch{rows, 1, rows};
  if (spec.encoder_decoder) batch = {shape.source, 1, shape.source, rows, rows};
  ModelBuilder b =
      begin_text(spec, batch, dtype, Mode::evaluate, name, {shape.capacity, shape.sequences, apart});
  const TensorId last_row = b.input("last_row", {shape.sequences}, DType::i32);
  const TensorId logits =
      b.graph().add_tensor({"logits", {shape.sequences, spec.vocab}, dtype, Role::metric});
  const TensorId h_TH = family_of(spec).hidden(b);
  const TensorId h_WH = b.op1(OpKind::gather_rows, {h_TH, last_row}, {}, "model.norm", "model.norm.in");
  write_logits(b, words_head(b, h_WH), logits);
  return std::move(b.graph());
}

}  // namespace

std::vector<Graph> build_generation(const ModelSpec& spec, const GenerationShape& shape, DType dtype) {
  std::vector<Graph> programs;
  programs.push_back(family_of(spec).encode != nullptr
                         ? build_encode(spec, shape, dtype)
                         : build_written(spec, shape, dtype, shape.chunk, "prefill", false));
  programs.push_back(build_written(spec, shape, dtype, shape.sequences, "decode", shape.sequences > 1));
  return programs;
}

std::string score_module(const ModelSpec& spec) {
  return std::string(spec.value_head ? kValueHead : family_of(spec).score);
}

std::string_view score_prefix(const ModelSpec& spec) { return family_of(spec).score_prefix; }

namespace {

// A saved model must be of a class that there is.
void require_scoring_class(const ModelSpec& spec) {
  const WrapperRule* wrapper = find_wrapper(spec.wrapper);
  if (wrapper == nullptr || wrapper->scores || spec.value_head || !spec.words.empty()) return;
  throw UsageError(
      formatted("a {} has no class in transformers with a head that scores sequences; train its text model "
                "alone, or classify by words (classify.words)",
                spec.wrapper));
}

}  // namespace

ScoredGraph build_scores(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t outputs,
                         Mode mode, const std::string& scores_name) {
  const FamilyRule& family = family_of(spec);
  require_scoring_class(spec);
  ModelBuilder b = begin(spec, shape, dtype, mode, "scores");
  const bool words = !spec.words.empty();
  if (!words) b.set_prefix(family.score_prefix);
  TensorId to = kNewTensor;
  if (!scores_name.empty())
    to = b.graph().add_tensor({scores_name, {shape.sequences, outputs}, dtype, Role::metric});
  b.add_sequence_axis();
  const TensorId x_BH = family.hidden(b);
  check_internal(b.axis() == sequence_axis(spec), "scores are of the rows that decide");
  const auto read = family.score_input != nullptr && !words ? family.score_input : family.final_norm;
  const TensorId y_BH = read(b, x_BH);
  const TensorId scores = words ? score_words(b, y_BH, to) : score(b, y_BH, outputs, to);
  return {std::move(b.graph()), scores};
}

LogProbGraph build_log_probs(const ModelSpec& spec, const BatchShape& shape, DType dtype, int64_t chunk,
                             Mode mode) {
  ModelBuilder b = begin_text(spec, shape, dtype, mode, "log_probs");
  const TensorId labels = b.input("labels", {shape.tokens}, DType::i32);
  Operands operands = {kNoTensor, kNoTensor, labels, b.input_named("seq_starts")};
  Attrs attrs = head_attrs(spec, chunk);
  attrs["rows_of"] = int64_t{kFirstAxis};
  if (shape.shares()) {
    for (const TensorId id : {kNoTensor, kNoTensor, b.input("label_rows", {shape.tokens}, DType::i32),
                              b.input("label_sequences", {shape.tokens}, DType::i32)})
      operands.push_back(id);
    attrs["sequences"] = shape.sequences;
  }
  using at = operand::linear_log_prob;
  operands[at::x] = family_of(spec).final_norm(b, family_of(spec).hidden(b));
  operands[at::weight] = b.head();
  b.set_axis(b.graph().add_axis(kSequenceAxisName));
  const Operands made = b.op(OpKind::linear_log_prob, std::move(operands), std::move(attrs),
                             {kNewTensor, kNewTensor}, "lm_head", "logps");
  return {std::move(b.graph()), made[at::logps], made[at::tokens]};
}

namespace {

// With all parameters; with `scores` those of a model that scores sequences so. An encoder whose head for words is not
// supported can do nothing else.
Graph smallest_graph(const ModelSpec& spec, int64_t scores) {
  const bool has_no_words = spec.encoder && !spec.tied_head;
  if (scores == 0 && (spec.scores_sequences || has_no_words)) scores = std::max<int64_t>(spec.labels, 1);
  return scores > 0 ? build_scores(spec, kSmallest, DType::f32, scores, Mode::evaluate, "").graph
                    : build_loss(spec, kSmallest, DType::f32, 1, Mode::evaluate, "loss");
}

}  // namespace

int64_t count_parameters(const ModelSpec& spec, int64_t scores) {
  const Graph graph = smallest_graph(spec, scores);
  int64_t total = 0;
  for (const Tensor& tensor : graph.tensors())
    if (tensor.role == Role::frozen_weight) total += tensor.shape.elements();
  return total;
}

std::vector<std::string> parameter_names(const ModelSpec& spec) {
  std::vector<std::string> names;
  const Graph graph = smallest_graph(spec, 0);
  for (const Tensor& tensor : graph.tensors())
    if (tensor.role == Role::frozen_weight) names.push_back(tensor.name);
  return names;
}

}  // namespace plimsoll
