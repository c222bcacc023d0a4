// Expressions.
#include "base/format.h"
#include "jinja/interpreter.h"

namespace plimsoll::jinja {

Value Interpreter::evaluate_node(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::constant:
      return e.constant;
    case ExpressionKind::name:
      return lookup(e.name);
    case ExpressionKind::list:
      return sequence(e, Type::list);
    case ExpressionKind::tuple:
      return sequence(e, Type::tuple);
    case ExpressionKind::dict:
      return dict(e);
    case ExpressionKind::negate:
      return negated(evaluate(*e.args[0]));
    case ExpressionKind::plus: {
      const Value value = evaluate(*e.args[0]);
      if (!value.is_number()) fail("'+' before " + type_name(value));
      return value.is(Type::real) ? value : Value::integer(value.as_integer());
    }
    case ExpressionKind::logical_not:
      return Value::boolean(!truthy(evaluate(*e.args[0])));
    case ExpressionKind::binary: {
      const Value left = evaluate(*e.args[0]);
      const Value right = evaluate(*e.args[1]);
      line_ = e.line;
      return operate(runtime_, e.name, left, right);
    }
    case ExpressionKind::concatenate:
      return concatenation(e);
    case ExpressionKind::compare:
      return comparison(e);
    case ExpressionKind::logical_and:
    case ExpressionKind::logical_or: {
      Value left = evaluate(*e.args[0]);
      return truthy(left) == (e.kind == ExpressionKind::logical_or) ? left : evaluate(*e.args[1]);
    }
    case ExpressionKind::conditional:
      if (truthy(evaluate(*e.args[0]))) return evaluate(*e.args[1]);
      if (e.args[2]) return evaluate(*e.args[2]);
      return Value::undefined("the 'if' of an expression is false and has no 'else'");
    case ExpressionKind::attribute:
      return attribute(runtime_, evaluate(*e.args[0]), e.name);
    case ExpressionKind::subscript: {
      const Value object = evaluate(*e.args[0]);
      const Value key = evaluate(*e.args[1]);
      line_ = e.line;
      return subscript(runtime_, object, key);
    }
    case ExpressionKind::slice:
      return slice_of(e);
    case ExpressionKind::call:
      return call(e);
    case ExpressionKind::filter:
      return filter(e, nullptr);
    case ExpressionKind::test: {
      const Value subject = evaluate(*e.args[0]);
      const Arguments arguments = arguments_of(e);
      line_ = e.line;
      return Value::boolean(call_test(runtime_, e.name, subject, arguments));
    }
  }
  fail("an expression of an unknown kind");
}

Value Interpreter::sequence(const Expression& e, Type type) {
  std::vector<Value> items;
  for (const auto& arg : e.args) runtime_.append(items, evaluate(*arg));
  return Value::sequence(type, std::move(items));
}

Value Interpreter::dict(const Expression& e) {
  Dict dict;
  for (size_t i = 0; i + 1 < e.args.size(); i += 2) {
    const Value key = evaluate(*e.args[i]);
    if (key.is(Type::list) || key.is(Type::dict)) fail(formatted("a {} cannot be a key", type_name(key)));
    runtime_.charge(static_cast<int64_t>(dict.items.size() / 8));
    dict.set(key, evaluate(*e.args[i + 1]));
  }
  return Value::dict(std::move(dict));
}

Value Interpreter::concatenation(const Expression& e) {
  std::string text;
  for (const auto& arg : e.args) runtime_.append(text, to_text(runtime_, evaluate(*arg)));
  return runtime_.make_text(std::move(text));
}

Value Interpreter::comparison(const Expression& e) {
  const auto holds = [this](Comparison comparison, const Value& a, const Value& b) {
    runtime_.charge_comparison(a, b);
    switch (comparison) {
      case Comparison::eq:
        return equal(a, b);
      case Comparison::ne:
        return !equal(a, b);
      case Comparison::lt:
        return compare(a, b) < 0;
      case Comparison::le:
        return compare(a, b) <= 0;
      case Comparison::gt:
        return compare(a, b) > 0;
      case Comparison::ge:
        return compare(a, b) >= 0;
      case Comparison::in:
        return contains(runtime_, b, a);
      case Comparison::not_in:
        return !contains(runtime_, b, a);
    }
    return false;
  };
  Value left = evaluate(*e.args[0]);
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = evaluate(*e.args[i + 1]);
    line_ = e.line;
    if (!holds(e.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::slice_of(const Expression& e) {
  const Value object = evaluate(*e.args[0]);
  Value bounds[3];
  const Value* given[3] = {nullptr, nullptr, nullptr};
  for (size_t i = 0; i < 3; ++i) {
    if (!e.args[i + 1]) continue;
    bounds[i] = evaluate(*e.args[i + 1]);
    given[i] = &bounds[i];
  }
  line_ = e.line;
  return slice(runtime_, object, given[0], given[1], given[2]);
}

Arguments Interpreter::arguments_of(const Expression& e) {
  Arguments arguments;
  for (size_t i = 1; i < e.args.size(); ++i) arguments.positional.push_back(evaluate(*e.args[i]));
  for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value));
  return arguments;
}

Value Interpreter::filter(const Expression& e, const Value* block_text) {
  const Expression& inner = *e.args[0];
  // A chain over the text of a set block starts from it.
  const bool over_block = block_text != nullptr && inner.kind == ExpressionKind::filter;
  const Value subject = over_block              ? filter(inner, block_text)
                        : block_text != nullptr ? *block_text
                                                : evaluate(inner);
  const Arguments arguments = arguments_of(e);
  line_ = e.line;
  return call_filter(runtime_, e.name, subject, arguments);
}

Value Interpreter::call(const Expression& e) {
  const Value callee = evaluate(*e.args[0]);
  const Arguments arguments = arguments_of(e);
  line_ = e.line;
  switch (callee.type()) {
    case Type::macro:
      return call_macro(callee.macro(), arguments);
    case Type::method:
      return call_method(runtime_, callee.method(), arguments);
    case Type::function:
      return call_function(runtime_, callee.text(), arguments);
    case Type::undefined:
      fail((callee.text().empty() ? "an undefined value" : callee.text()) + " and cannot be called");
    default:
      fail(formatted("a {} cannot be called", type_name(callee)));
  }
}

}  // namespace plimsoll::jinja
