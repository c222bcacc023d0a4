// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/limits.h"
#include "jinja/value.h"

namespace plimsoll::jinja {

enum class ExpressionKind : uint8_t {
  constant,
  name,         // `name`
  list,         // args
  tuple,        // args
  dict,         // args: key, value, key, value, ...
  negate,       // args: operand
  plus,         // args: operand
  logical_not,  // args: operand
  binary,       // args: left, right; `name`: + - * / // % **
  concatenate,  // args; ~
  compare,      // args: first, second, ...; `comparisons` between them
  logical_and,  // args: left, right
  logical_or,
  conditional,  // args: condition, value, else or null
  attribute,    // args: object; `name`
  subscript,    // args: object, key
  slice,        // args: object, start, stop, step, each of these or null
  call,         // args: callee, arguments...; `named`
  filter,       // args: subject, arguments...; `name`, `named`
  test          // args: subject, arguments...; `name`, `named`
};

enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  int line = 1;
  int height = 1;  // of the tree below it
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> args;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<Comparison> comparisons;
};

// The target of an assignment: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;      // not empty: of the namespace `name`
  std::vector<Target> parts;  // not empty: a tuple
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: undefined
};
struct MacroStatement {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
};

enum class StatementKind : uint8_t {
  data,          // `text`
  print,         // `value`
  branch,        // branches in order, `otherwise`
  loop,          // `target`, `value`, `condition` or null, `body`, `otherwise`
  assign,        // `target`, `value`
  assign_block,  // `target`, `body`, `value`: a filter chain over the constant in its depth, or null
  macro,         // `macro`
  generation,    // `body`
  leave,         // break
  next           // continue
};

struct Branch {
  ExpressionPtr condition;
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::data;
  int line = 1;
  std::string text;
  Target target;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
  MacroStatement macro;
};

struct SyntaxTree {
  Block body;
  bool marks_generation = false;  // has {% generation %} blocks
};

// Throws SyntaxFailure (lexer.h) for what is malformed, nested too deep, or not supported.
SyntaxTree parse(std::string_view source, const TemplateLimits& limits);

}  // namespace plimsoll::jinja
