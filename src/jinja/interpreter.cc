#include "jinja/interpreter.h"

#include "base/format.h"
#include "base/growth.h"
#include "jinja/lexer.h"

namespace plimsoll::jinja {

// Bounds the stack: everything that recurses passes here.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.level_ <= interpreter_.runtime_.limits().evaluation_depth) return;
    --interpreter_.level_;
    fail(formatted("it recurses deeper than {} levels", interpreter_.runtime_.limits().evaluation_depth));
  }
  ~Level() { --interpreter_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

Output Interpreter::run(const SyntaxTree& tree) {
  out_ = &output_.text;
  try {
    execute(tree.body);
  } catch (const SyntaxFailure&) {
    throw;
  } catch (const Failure& failure) {
    throw SyntaxFailure(line_, failure.what());
  }
  return std::move(output_);
}

void Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > runtime_.limits().output_bytes)
    fail(formatted("it prints more than {} bytes", runtime_.limits().output_bytes));
  runtime_.charge(static_cast<int64_t>(text.size() / 16) + 1);
  reserve_more(*out_, text.size());
  *out_ += text;
}

void Interpreter::print(const Value& value) {
  if (value.is(Type::string))
    write(value.text());
  else
    write(to_text(runtime_, value));
}

Value Interpreter::lookup(const std::string& name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    runtime_.charge(static_cast<int64_t>(scope->names.size() / 16));
    for (const auto& [known, value] : scope->names)
      if (known == name) return value;
  }
  if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
  for (const char* function : {"dict", "namespace", "raise_exception", "range", "strftime_now"})
    if (name == function) return Value::function(name);
  return Value::undefined(formatted("'{}' is undefined", name));
}

void Interpreter::set(std::string_view name, Value value) {
  runtime_.charge(static_cast<int64_t>(scope_->names.size() / 16));
  for (auto& [known, old] : scope_->names) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  scope_->names.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.parts.empty()) {
    const std::vector<Value> values = iterate(runtime_, value);
    if (values.size() != target.parts.size())
      fail(formatted("{} values for {} names", values.size(), target.parts.size()));
    for (size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
    return;
  }
  if (target.attribute.empty()) return set(target.name, std::move(value));
  const Value holder = lookup(target.name);
  if (!holder.is(Type::name_space))
    fail(formatted("'{}' is no namespace, so '{}' cannot be set", target.name, target.attribute));
  if (target.attribute.starts_with('_')) fail("a namespace's attribute cannot start with '_'");
  runtime_.charge(static_cast<int64_t>(holder.attributes().items.size()));
  holder.attributes().set(Value::string(target.attribute), std::move(value));
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = execute(*statement);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const Level level(*this);
  line_ = statement.line;
  runtime_.charge(1);
  switch (statement.kind) {
    case StatementKind::data:
      write(statement.text);
      return Flow::on;
    case StatementKind::print:
      print(evaluate(*statement.value));
      return Flow::on;
    case StatementKind::branch:
      return branch(statement);
    case StatementKind::loop:
      return loop(statement);
    case StatementKind::assign:
      assign(statement.target, evaluate(*statement.value));
      return Flow::on;
    case StatementKind::assign_block:
      assign_block(statement);
      return Flow::on;
    case StatementKind::macro:
      set(statement.macro.name, Value::macro(statement.macro));
      return Flow::on;
    case StatementKind::generation:
      generation(statement);
      return Flow::on;
    case StatementKind::leave:
      return Flow::leave;
    case StatementKind::next:
      return Flow::next;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::branch(const Statement& statement) {
  for (const Branch& branch : statement.branches)
    if (truthy(evaluate(*branch.condition))) return execute(branch.body);
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::loop(const Statement& statement) {
  std::vector<Value> items = iterate(runtime_, evaluate(*statement.value));
  if (statement.condition) {
    std::vector<Value> chosen;
    Scope scope{scope_, {}};
    Scope* const outer = std::exchange(scope_, &scope);
    for (Value& item : items) {
      scope.names.clear();
      assign(statement.target, item);
      if (truthy(evaluate(*statement.condition))) chosen.push_back(std::move(item));
    }
    scope_ = outer;
    items = std::move(chosen);
  }
  return iterations(statement, std::move(items));
}

Interpreter::Flow Interpreter::iterations(const Statement& statement, std::vector<Value> items) {
  const auto state = std::make_shared<Loop>(Loop{std::move(items), 0});
  const Value value = Value::loop(state);
  Scope scope{scope_, {}};
  Scope* const outer = std::exchange(scope_, &scope);
  // As in Jinja: `else` also runs where every turn was cut short by break or continue.
  bool completed = false;
  for (; state->index < state->items.size(); ++state->index) {
    scope.names.clear();
    set("loop", value);
    assign(statement.target, state->items[state->index]);
    const Flow flow = execute(statement.body);
    completed = completed || flow == Flow::on;
    if (flow == Flow::leave) break;
  }
  scope_ = outer;
  return completed ? Flow::on : execute(statement.otherwise);
}

// As a function of its own in Jinja: what is set inside stays inside.
void Interpreter::generation(const Statement& statement) {
  const size_t begin = out_->size();
  Scope scope{scope_, {}};
  Scope* const outer = std::exchange(scope_, &scope);
  execute(statement.body);
  scope_ = outer;
  output_.generated.emplace_back(begin, out_->size());
}

std::string Interpreter::captured(const Block& block, Scope& scope) {
  std::string text;
  std::string* const out = std::exchange(out_, &text);
  Scope* const outer = std::exchange(scope_, &scope);
  execute(block);
  scope_ = outer;
  out_ = out;
  runtime_.check_text(text.size());
  return text;
}

void Interpreter::assign_block(const Statement& statement) {
  Scope scope{scope_, {}};
  Value text = runtime_.make_text(captured(statement.body, scope));
  if (statement.value) text = filter(*statement.value, &text);
  assign(statement.target, std::move(text));
}

// A macro sees its parameters and what stands outside of all blocks.
Value Interpreter::call_macro(const MacroStatement& macro, const Arguments& arguments) {
  std::vector<std::string_view> names;
  for (const Parameter& parameter : macro.parameters) names.push_back(parameter.name);
  const auto bound = arguments.bind(names);
  if (macro_level_ >= runtime_.limits().macro_depth)
    fail(formatted("the macro '{}' calls itself deeper than {} levels", macro.name,
                   runtime_.limits().macro_depth));
  ++macro_level_;
  Scope scope{&root_, {}};
  Scope* const outer = std::exchange(scope_, &scope);
  for (size_t i = 0; i < names.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (bound[i] != nullptr)
      set(names[i], *bound[i]);
    else
      set(names[i], parameter.fallback
                        ? evaluate(*parameter.fallback)
                        : Value::undefined(formatted("parameter '{}' was not provided", parameter.name)));
  }
  std::string text = captured(macro.body, scope);
  scope_ = outer;
  --macro_level_;
  return runtime_.make_text(std::move(text));
}

Value Interpreter::evaluate(const Expression& e) {
  const Level level(*this);
  runtime_.charge(1);
  line_ = e.line;
  return evaluate_node(e);
}

}  // namespace plimsoll::jinja
