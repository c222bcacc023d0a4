#include "ops/operands.h"

#include <array>

#include "base/error.h"
#include "base/strings.h"
#include "graph/op_kind.h"

namespace plimsoll {

// Functions that serve several ops (an op and its gradient, the kinds of one op) ask by the names of one of them: the
// numbers must be those of the others too.
#define SAME(one, other, name) static_assert(size_t{operand::one::name} == size_t{operand::other::name})
SAME(gla, gla_grad, v);
SAME(gla, gla_grad, gate);
SAME(gla, gla_cached, v);
SAME(gla, gla_cached, gate);
SAME(delta_rule, delta_rule_grad, beta);
SAME(delta_rule, delta_rule_cached, beta);
SAME(delta_gate, delta_gate_grad, dt_bias);
SAME(sigmoid_gate, sigmoid_gate_grad, gate);
SAME(short_conv, short_conv_grad, weight);
SAME(short_conv, short_conv_cached, weight);
SAME(dora_scale, dora_scale_grad, lengths);
SAME(word_scores, word_scores_grad, x);
SAME(word_scores, word_scores_grad, weight);
SAME(linear_log_prob, linear_log_prob_grad, seq_starts);
SAME(linear_cross_entropy, linear_cross_entropy_grad, step);
SAME(linear_cross_entropy, linear_cross_entropy_grad, label_weights);
SAME(linear_cross_entropy, linear_cross_entropy_grad, bias);
SAME(linear_cross_entropy, linear_cross_entropy_grad, loss);
SAME(preference_loss, preference_loss_grad, reference);
SAME(preference_loss, preference_loss_grad, step);
SAME(preference_loss, preference_loss_grad, sums);
SAME(pair_loss, pair_loss_grad, step);
SAME(pair_loss, class_loss, scores);
SAME(pair_loss, class_loss, step);
SAME(pair_loss, class_loss, sums);
SAME(pair_loss_grad, class_loss_grad, step);
SAME(pair_loss_grad, class_loss_grad, sums);
SAME(pair_loss_grad, class_loss_grad, d_scores);
static_assert(size_t{operand::pair_loss::margins} == size_t{operand::class_loss::targets});
SAME(fetch_wait, store, copy);
SAME(store_wait, store, copy);
#undef SAME
namespace {

// "x, d_x_in?, squares..."
std::vector<OperandName> names_in(std::string_view text) {
  std::vector<OperandName> names;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(", ", end)));
    const size_t mark = std::min(name.find_first_of("?. "), name.size());
    names.push_back({.name = name.substr(0, mark),
                     .optional = name.find('?') != std::string_view::npos,
                     .many = name.find("...") != std::string_view::npos});
  }
  return names;
}

void require_named(const Graph& graph, const Op& op, const std::vector<OperandName>& names,
                   const Operands& given, const char* what) {
  const auto refuse = [&](const std::string& why) {
    throw InternalError(std::string(to_string(op.kind)) + ": " + why + ": " + print_op(graph, op));
  };
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].optional && (i >= given.size() || given[i] == kNoTensor))
      refuse(std::string(what) + " '" + std::string(names[i].name) + "' is missing");
  if (given.size() > names.size() && !names.back().many)
    refuse("there is no " + std::string(what) + " behind '" + std::string(names.back().name) + "'");
}

}  // namespace

const OperandNames& operand_names(OpKind kind) {
#define TEXT(...) #__VA_ARGS__
#define IN(...) TEXT(__VA_ARGS__)
#define OUT(...) TEXT(__VA_ARGS__)
#define MAYBE(name) name ?
#define MANY(name) name...
  static const std::array<OperandNames, kNumOpKinds> kNames = {{
#define OP(name, in, out) {names_in(in), names_in(out)},
#include "ops/ops.def"
#undef OP
  }};
#undef MANY
#undef MAYBE
#undef OUT
#undef IN
#undef TEXT
  return kNames[static_cast<size_t>(kind)];
}

void require_operands(const Graph& graph, const Op& op) {
  const OperandNames& names = operand_names(op.kind);
  require_named(graph, op, names.inputs, op.inputs, "input");
  require_named(graph, op, names.outputs, op.outputs, "output");
}

}  // namespace plimsoll
