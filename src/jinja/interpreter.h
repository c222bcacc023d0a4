// Renders a template by running its syntax tree.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jinja/library.h"
#include "jinja/syntax.h"

namespace plimsoll::jinja {

struct Output {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;  // bytes of the generation blocks: begin, end
};

using Variables = std::map<std::string, Value, std::less<>>;

class Interpreter {
 public:
  Interpreter(const TemplateLimits& limits, const std::optional<std::tm>& now, const Variables& variables)
      : runtime_(limits, now), variables_(variables) {}

  // Throws SyntaxFailure with the line of what failed.
  Output run(const SyntaxTree& tree);

 private:
  // The names that a block assigns, where it opens a scope; names of the blocks around it are visible too.
  struct Scope {
    const Scope* parent = nullptr;
    std::vector<std::pair<std::string_view, Value>> names;
  };
  enum class Flow : uint8_t { on, leave, next };
  class Level;

  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow branch(const Statement& statement);
  Flow loop(const Statement& statement);
  Flow iterations(const Statement& statement, std::vector<Value> items);
  void generation(const Statement& statement);
  void assign_block(const Statement& statement);
  void assign(const Target& target, Value value);
  void print(const Value& value);
  void write(std::string_view text);
  // The text that a block prints, in a scope of its own over `parent`.
  std::string captured(const Block& block, Scope& scope);

  Value evaluate(const Expression& e);
  Value evaluate_node(const Expression& e);
  Value sequence(const Expression& e, Type type);
  Value dict(const Expression& e);
  Value comparison(const Expression& e);
  Value concatenation(const Expression& e);
  Value call(const Expression& e);
  Value call_macro(const MacroStatement& macro, const Arguments& arguments);
  Value filter(const Expression& e, const Value* block_text);
  Value slice_of(const Expression& e);
  Arguments arguments_of(const Expression& e);
  [[nodiscard]] Value lookup(const std::string& name);
  void set(std::string_view name, Value value);

  Runtime runtime_;
  const Variables& variables_;
  Scope root_;
  Scope* scope_ = &root_;
  std::string* out_ = nullptr;
  Output output_;
  int line_ = 1;
  int level_ = 0;
  int macro_level_ = 0;
};

}  // namespace plimsoll::jinja
