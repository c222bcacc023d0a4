// word_scores: logits of a few tokens of the vocabulary, those that stand for classes: a few rows of the
// head's weight, never the others. word_scores_grad adds to those rows of the weight's gradient, which is
// cleared as a whole when it is written for the first time in a step. Rows that are not live have scores and
// gradients of 0.
#include "ops/loss/word_scores.h"

#include <charconv>

#include "graph/op_kind.h"
#include "ops/rules.h"
#include "ops/step_values.h"

namespace plimsoll {

std::string words_text(std::span<const int32_t> words) {
  std::string text;
  for (const int32_t word : words) text += (text.empty() ? "" : " ") + std::to_string(word);
  return text;
}

std::vector<int32_t> words_of(const Op& op) {
  const std::string text = op.attr_text("words");
  std::vector<int32_t> words;
  for (const char *at = text.data(), *const end = at + text.size(); at < end; ++at) {
    words.emplace_back();
    at = std::from_chars(at, end, words.back()).ptr;
  }
  return words;
}

namespace {

// x [B, H], weight [V, H], step -> scores [B, C]
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::word_scores;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(x.shape.rank() == 2 && weight.shape.rank() == 2 && x.shape[1] == weight.shape[1], g, op,
          "word_scores: shapes");
  require(x.dtype == weight.dtype, g, op, "word_scores: x and weight differ in type");
  const std::vector<int32_t> words = words_of(op);
  require(!words.empty(), g, op, "word_scores: no words");
  for (const int32_t word : words)
    require(word >= 0 && word < weight.shape[0], g, op, "word_scores: a word outside the vocabulary");
  return {{"", {x.shape[0], std::ssize(words)}, x.dtype}};
}

// x, weight, d_scores, step -> d_x [B, H]?, gradient [V, H]?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::word_scores_grad;
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", x.shape, x.dtype},
          {".grad", input_tensor(g, op, at::weight).shape, gradient_dtype(g, op, at::d_weight)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::word_scores;
  const TensorId x = op.inputs[at::x], weight = op.inputs[at::weight];
  TensorId weight_gradient = kNoTensor;
  Attrs attrs = op.attrs;
  attrs["accumulate"] = int64_t{0};
  if (ctx.wants(weight)) {
    const auto target = ctx.weight_gradient(weight);
    weight_gradient = target.tensor;
    attrs["accumulate"] = target.accumulate;
  }
  const auto out =
      ctx.emit(OpKind::word_scores_grad, {x, weight, ctx.gradient_of(op.outputs[at::scores]), ctx.step()},
               std::move(attrs), {ctx.wants(x) ? kNewTensor : kNoTensor, weight_gradient},
               "d_" + ctx.graph().tensor(x).name);
  if (ctx.wants(x)) ctx.add_gradient(x, out[operand::word_scores_grad::d_x]);
}

double bytes_of_words(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, operand::word_scores::x);
  return 4.0 * static_cast<double>(x.bytes()) * static_cast<double>(words_of(op).size());
}

Cost cost(const Graph& g, const Op& op) { return {0, bytes_of_words(g, op)}; }

// The words' rows, and the gradient where it is cleared.
Cost cost_grad(const Graph& g, const Op& op) {
  using at = operand::word_scores_grad;
  const double cleared = op.has_output(at::d_weight) && op.attr_int("accumulate") != kAlwaysAdds
                             ? static_cast<double>(g.tensor(op.outputs[at::d_weight]).bytes())
                             : 0.0;
  return {0, cleared + bytes_of_words(g, op)};
}

}  // namespace

const OpRule word_scores_rule{
    .kind = OpKind::word_scores, .infer = infer, .gradient = gradient, .cost = cost};
const OpRule word_scores_grad_rule{.kind = OpKind::word_scores_grad,
                                   .infer = infer_grad,
                                   .cost = cost_grad,
                                   .launches = launches_of_gradients<operand::word_scores_grad>,
                                   .updates = true};

}  // namespace plimsoll
