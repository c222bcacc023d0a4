#include <algorithm>
#include <optional>

#include "base/format.h"
#include "base/strings.h"
#include "jinja/names.h"
#include "jinja/parser.h"

namespace plimsoll::jinja {
namespace {

using Exprs = std::vector<ExpressionPtr>;

template <class... Nodes>
Exprs all(Nodes... nodes) {
  Exprs list;
  (list.push_back(std::move(nodes)), ...);
  return list;
}

}  // namespace

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.level_ > parser_.limit_) {
    --parser_.level_;
    parser_.refuse(formatted("blocks and expressions are nested deeper than {} levels", parser_.limit_));
  }
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  take();
  return true;
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) refuse(formatted("expected '{}', found {}", op, describe(here())));
}

std::string ExpressionParser::expect_name(const char* what) {
  if (here().kind != Kind::name) refuse(formatted("expected {}, found {}", what, describe(here())));
  return take().text;
}

// The height bounds every later walk, also that of a long chain, which the parser reads in a loop.
ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line, Exprs args, std::string name) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  node->name = std::move(name);
  for (const ExpressionPtr& arg : args)
    if (arg) node->height = std::max(node->height, arg->height + 1);
  if (node->height > limit_)
    throw SyntaxFailure(line, formatted("an expression is nested deeper than {} levels", limit_));
  node->args = std::move(args);
  return node;
}

ExpressionPtr ExpressionParser::expression(bool conditional) {
  const Level level(*this);
  int line = here().line;
  ExpressionPtr node = logical_or();
  while (conditional && skip_name("if")) {
    ExpressionPtr condition = logical_or();
    ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
    node = make(ExpressionKind::conditional, line,
                all(std::move(condition), std::move(node), std::move(otherwise)));
    line = here().line;
  }
  return node;
}

bool ExpressionParser::ends_tuple(std::string_view end) const {
  const Token& token = here();
  if (token.kind == Kind::print_end || token.kind == Kind::block_end || token.kind == Kind::end) return true;
  return at_op(")") || (!end.empty() && at_name(end));
}

ExpressionPtr ExpressionParser::tuple(bool conditional, std::string_view end) {
  const int line = here().line;
  Exprs items;
  bool is_tuple = false;
  while (!ends_tuple(end)) {
    items.push_back(expression(conditional));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items.front());
  if (items.empty()) refuse("expected an expression, found " + describe(here()));
  return make(ExpressionKind::tuple, line, std::move(items));
}

ExpressionPtr ExpressionParser::logical_or() {
  ExpressionPtr node = logical_and();
  for (int line = here().line; skip_name("or"); line = here().line)
    node = make(ExpressionKind::logical_or, line, all(std::move(node), logical_and()));
  return node;
}

ExpressionPtr ExpressionParser::logical_and() {
  ExpressionPtr node = logical_not();
  for (int line = here().line; skip_name("and"); line = here().line)
    node = make(ExpressionKind::logical_and, line, all(std::move(node), logical_not()));
  return node;
}

ExpressionPtr ExpressionParser::logical_not() {
  const int line = here().line;
  if (!skip_name("not")) return comparison();
  const Level level(*this);
  return make(ExpressionKind::logical_not, line, all(logical_not()));
}

std::optional<Comparison> ExpressionParser::comparison_here() const {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::eq}, {"!=", Comparison::ne}, {"<", Comparison::lt},
      {"<=", Comparison::le}, {">", Comparison::gt},  {">=", Comparison::ge}};
  for (const auto& [text, comparison] : kOperators)
    if (at_op(text)) return comparison;
  if (at_name("in")) return Comparison::in;
  if (at_name("not") && ahead().kind == Kind::name && ahead().text == "in") return Comparison::not_in;
  return std::nullopt;
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = here().line;
  Exprs operands = all(sum());
  std::vector<Comparison> comparisons;
  while (const auto found = comparison_here()) {
    take();
    if (*found == Comparison::not_in) take();
    comparisons.push_back(*found);
    operands.push_back(sum());
  }
  if (comparisons.empty()) return std::move(operands.front());
  ExpressionPtr node = make(ExpressionKind::compare, line, std::move(operands));
  node->comparisons = std::move(comparisons);
  return node;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr node = concatenation();
  while (at_op("+") || at_op("-")) {
    const int line = here().line;
    std::string op = take().text;
    node = make(ExpressionKind::binary, line, all(std::move(node), concatenation()), std::move(op));
  }
  return node;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = here().line;
  Exprs parts = all(product());
  while (skip_op("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return make(ExpressionKind::concatenate, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr node = power();
  while (at_op("*") || at_op("/") || at_op("//") || at_op("%")) {
    const int line = here().line;
    std::string op = take().text;
    node = make(ExpressionKind::binary, line, all(std::move(node), power()), std::move(op));
  }
  return node;
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr node = unary(true);
  while (at_op("**")) {
    const int line = here().line;
    take();
    node = make(ExpressionKind::binary, line, all(std::move(node), unary(true)), "**");
  }
  return node;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const int line = here().line;
  ExpressionPtr node;
  if (at_op("-") || at_op("+")) {
    const Level level(*this);
    const auto kind = take().text == "-" ? ExpressionKind::negate : ExpressionKind::plus;
    node = make(kind, line, all(unary(false)));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::primary() {
  const Token& token = here();
  const auto constant = [&](Value value) {
    ExpressionPtr node = make(ExpressionKind::constant, token.line, {});
    node->constant = std::move(value);
    take();
    return node;
  };
  if (token.kind == Kind::string) return text();
  if (token.kind == Kind::integer) return constant(Value::integer(token.integer));
  if (token.kind == Kind::real) return constant(Value::real(token.real));
  if (token.kind == Kind::name) {
    if (token.text == "true" || token.text == "True") return constant(Value::boolean(true));
    if (token.text == "false" || token.text == "False") return constant(Value::boolean(false));
    if (token.text == "none" || token.text == "None") return constant(Value::none());
    ExpressionPtr node = make(ExpressionKind::name, token.line, {}, token.text);
    take();
    return node;
  }
  if (at_op("[")) return list();
  if (at_op("{")) return dict();
  if (skip_op("(")) {
    const int line = here().line;
    ExpressionPtr node = at_op(")") ? make(ExpressionKind::tuple, line, {}) : tuple();
    expect_op(")");
    return node;
  }
  refuse("unexpected " + describe(token));
}

ExpressionPtr ExpressionParser::text() {
  ExpressionPtr node = make(ExpressionKind::constant, here().line, {});
  std::string joined;
  while (here().kind == Kind::string) joined += take().text;
  node->constant = Value::string(std::move(joined));
  return node;
}

ExpressionPtr ExpressionParser::list() {
  const int line = here().line;
  take();
  Exprs items;
  while (!at_op("]")) {
    items.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("]");
  return make(ExpressionKind::list, line, std::move(items));
}

ExpressionPtr ExpressionParser::dict() {
  const int line = here().line;
  take();
  Exprs items;
  while (!at_op("}")) {
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("}");
  return make(ExpressionKind::dict, line, std::move(items));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr node) {
  while (true) {
    if (at_op("."))
      node = attribute(std::move(node));
    else if (at_op("["))
      node = subscript(std::move(node));
    else if (at_op("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (at_op("|"))
      node = filter(std::move(node));
    else if (at_name("is"))
      node = test(std::move(node));
    else if (at_op("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr subject) {
  while (at_op("|")) subject = filter(std::move(subject));
  return subject;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr subject) {
  take();
  const int line = here().line;
  std::string name = expect_name("a filter's name");
  if (!is_filter(name)) throw SyntaxFailure(line, unknown_name("filter", name, filter_names()));
  ExpressionPtr node = make(ExpressionKind::filter, line, all(std::move(subject)), std::move(name));
  if (at_op("(")) arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr subject) {
  take();
  const bool negated = skip_name("not");
  const int line = here().line;
  std::string name = expect_name("a test's name");
  if (!is_test(name)) throw SyntaxFailure(line, unknown_name("test", name, test_names()));
  ExpressionPtr node = make(ExpressionKind::test, line, all(std::move(subject)), std::move(name));
  const Token& token = here();
  const bool operand = token.kind == Kind::name || token.kind == Kind::string ||
                       token.kind == Kind::integer || token.kind == Kind::real || at_op("[") || at_op("{");
  if (at_op("(")) {
    arguments(*node);
  } else if (operand && !at_name("else") && !at_name("or") && !at_name("and")) {
    if (at_name("is")) refuse("tests cannot be chained with 'is'");
    ExpressionPtr argument = postfix(primary());
    node->height = std::max(node->height, argument->height + 1);
    node->args.push_back(std::move(argument));
  }
  return negated ? make(ExpressionKind::logical_not, line, all(std::move(node))) : std::move(node);
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr object) {
  const int line = take().line;
  if (here().kind == Kind::integer) {
    ExpressionPtr key = make(ExpressionKind::constant, line, {});
    key->constant = Value::integer(take().integer);
    return make(ExpressionKind::subscript, line, all(std::move(object), std::move(key)));
  }
  return make(ExpressionKind::attribute, line, all(std::move(object)),
              expect_name("a name or a number after '.'"));
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
  const int line = take().line;
  Exprs parts = all(std::move(object));
  bool is_slice = false;
  while (true) {
    parts.push_back(at_op(":") || at_op("]") ? nullptr : expression());
    if (!skip_op(":")) break;
    is_slice = true;
  }
  if (at_op(",")) refuse("a subscript of several parts is not supported");
  if (parts.size() > 4) refuse("a slice has at most three parts");
  expect_op("]");
  if (!is_slice && !parts[1]) throw SyntaxFailure(line, "a subscript is empty");
  parts.resize(is_slice ? 4 : 2);
  return make(is_slice ? ExpressionKind::slice : ExpressionKind::subscript, line, std::move(parts));
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  const int line = here().line;
  if (callee->kind == ExpressionKind::name) called_.emplace_back(callee->name, line);
  if (callee->kind == ExpressionKind::attribute && !is_method(callee->name))
    throw SyntaxFailure(line, unknown_name("method", callee->name, method_names()));
  ExpressionPtr node = make(ExpressionKind::call, line, all(std::move(callee)));
  arguments(*node);
  return node;
}

// "(a, b, name=c)" behind a callee, filter or test.
void ExpressionParser::arguments(Expression& node) {
  expect_op("(");
  const auto add_height = [&node](const Expression& argument) {
    node.height = std::max(node.height, argument.height + 1);
  };
  while (!at_op(")")) {
    if (at_op("*") || at_op("**")) refuse("arguments by * and ** are not supported");
    if (here().kind == Kind::name && ahead().kind == Kind::op && ahead().text == "=") {
      std::string name = take().text;
      take();
      node.named.emplace_back(std::move(name), expression());
      add_height(*node.named.back().second);
    } else {
      if (!node.named.empty()) refuse("an argument without a name follows one with a name");
      node.args.push_back(expression());
      add_height(*node.args.back());
    }
    if (!skip_op(",")) break;
  }
  expect_op(")");
  if (node.height > limit_) refuse(formatted("an expression is nested deeper than {} levels", limit_));
}

}  // namespace plimsoll::jinja
