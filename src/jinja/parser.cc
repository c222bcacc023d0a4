#include "jinja/parser.h"

#include <algorithm>

#include "base/format.h"
#include "jinja/names.h"
#include "unicode/utf8.h"

namespace plimsoll::jinja {
namespace {

// Known to Jinja, but nothing that chat templates use.
constexpr std::string_view kUnsupportedTags[] = {"include", "extends",    "import", "from",
                                                 "block",   "call",       "filter", "with",
                                                 "do",      "autoescape", "trans",  "debug"};

class Parser : public ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, int nesting) : ExpressionParser(std::move(tokens), nesting) {}

  SyntaxTree run() {
    tree_.body = block({});
    if (here().kind != Kind::end) refuse(formatted("'{}' closes nothing that is open", here().text));
    for (const auto& [name, line] : called_)
      if (!is_function(name) && !bound_.contains(name))
        throw SyntaxFailure(line, unknown_name("function", name, function_names()));
    return std::move(tree_);
  }

 private:
  // Statements up to a tag of `ends`, which stays (behind its "{%").
  Block block(const std::vector<std::string_view>& ends) {
    const Level level(*this);
    Block statements;
    while (here().kind != Kind::end) {
      if (here().kind == Kind::data) {
        auto& statement = add(statements, StatementKind::data);
        statement.text = take().text;
      } else if (here().kind == Kind::print_begin) {
        take();
        auto& statement = add(statements, StatementKind::print);
        statement.value = tuple();
        expect_end(Kind::print_end, "}}");
      } else {
        if (ahead().kind == Kind::name && std::find(ends.begin(), ends.end(), ahead().text) != ends.end()) {
          take();
          return statements;
        }
        take();
        tag(statements);
      }
    }
    return statements;
  }

  Statement& add(Block& statements, StatementKind kind) {
    statements.push_back(std::make_unique<Statement>());
    statements.back()->kind = kind;
    statements.back()->line = here().line;
    return *statements.back();
  }

  void expect_end(Kind kind, const char* text) {
    if (here().kind != kind) refuse(formatted("expected '{}', found {}", text, describe(here())));
    take();
  }

  // The block up to its end tag, the end tag included; `name` opened it in `line`.
  Block closed(const char* name, int line, std::vector<std::string_view> ends) {
    expect_end(Kind::block_end, "%}");
    Block statements = block(ends);
    if (here().kind == Kind::end)
      throw SyntaxFailure(line, formatted("'{}' is not closed: '{}' is missing", name, ends.back()));
    return statements;
  }

  void tag(Block& statements) {
    const int line = here().line;
    const std::string name = expect_name("a tag's name");
    if (name == "for") return loop(add(statements, StatementKind::loop), line);
    if (name == "if") return branch(add(statements, StatementKind::branch), line);
    if (name == "set") return assign(statements, line);
    if (name == "macro") return macro(add(statements, StatementKind::macro), line);
    if (name == "generation") return generation(add(statements, StatementKind::generation), line);
    if (name == "break" || name == "continue") {
      if (loops_ == 0) throw SyntaxFailure(line, formatted("'{}' stands outside of a loop", name));
      add(statements, name == "break" ? StatementKind::leave : StatementKind::next);
      return expect_end(Kind::block_end, "%}");
    }
    for (const std::string_view tag : kUnsupportedTags)
      if (tag == name) throw SyntaxFailure(line, formatted("the tag '{}' is not supported", name));
    throw SyntaxFailure(line, name.starts_with("end") || name.starts_with("el")
                                  ? formatted("'{}' closes nothing that is open", name)
                                  : formatted("there is no tag '{}'", name));
  }

  Target single_target(bool attributes) {
    Target target;
    if (skip_op("(")) {
      target = targets(attributes, ")");
      expect_op(")");
      return target;
    }
    target.name = expect_name("a name to assign to");
    static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    for (const std::string_view constant : kConstants)
      if (target.name == constant) refuse(formatted("'{}' cannot be assigned to", target.name));
    if (attributes && skip_op("."))
      target.attribute = expect_name("an attribute's name");
    else
      bound_.insert(target.name);
    return target;
  }

  Target targets(bool attributes, std::string_view end) {
    const Level level(*this);
    Target first = single_target(attributes);
    if (!at_op(",")) return first;
    Target all;
    all.parts.push_back(std::move(first));
    while (skip_op(","))
      if (!at_name("in") && !at_op("=") && !at_op(end)) all.parts.push_back(single_target(attributes));
    return all;
  }

  void loop(Statement& statement, int line) {
    statement.target = targets(false, "");
    if (!skip_name("in")) refuse("expected 'in', found " + describe(here()));
    statement.value = tuple(false, "recursive");
    if (skip_name("if")) statement.condition = expression();
    if (at_name("recursive")) refuse("recursive loops are not supported; use a macro");
    ++loops_;
    statement.body = closed("for", line, {"else", "endfor"});
    --loops_;
    if (take().text == "else") {
      statement.otherwise = closed("for", line, {"endfor"});
      take();
    }
    expect_end(Kind::block_end, "%}");
  }

  void branch(Statement& statement, int line) {
    do {
      ExpressionPtr condition = tuple(false);
      statement.branches.push_back({std::move(condition), closed("if", line, {"elif", "else", "endif"})});
    } while (take().text == "elif");
    if (previous_ == "else") {
      statement.otherwise = closed("if", line, {"endif"});
      take();
    }
    expect_end(Kind::block_end, "%}");
  }

  void assign(Block& statements, int line) {
    Target target = targets(true, "=");
    if (skip_op("=")) {
      auto& statement = add(statements, StatementKind::assign);
      statement.line = line;
      statement.target = std::move(target);
      statement.value = tuple();
      return expect_end(Kind::block_end, "%}");
    }
    auto& statement = add(statements, StatementKind::assign_block);
    statement.line = line;
    statement.target = std::move(target);
    if (at_op("|")) statement.value = filters(make(ExpressionKind::constant, line, {}));
    statement.body = captured("set", line, {"endset"});
  }

  void macro(Statement& statement, int line) {
    if (loops_ > 0 || captures_ > 0)
      throw SyntaxFailure(line,
                          "a macro inside of a loop, a macro or another block of text is not supported");
    MacroStatement& made = statement.macro;
    made.name = expect_name("the macro's name");
    bound_.insert(made.name);
    expect_op("(");
    while (!at_op(")")) {
      Parameter parameter{expect_name("a parameter's name"), nullptr};
      bound_.insert(parameter.name);
      if (skip_op("="))
        parameter.fallback = expression();
      else if (!made.parameters.empty() && made.parameters.back().fallback)
        refuse("a parameter without a default follows one with a default");
      made.parameters.push_back(std::move(parameter));
      if (!skip_op(",")) break;
    }
    expect_op(")");
    made.body = captured("macro", line, {"endmacro"});
  }

  // A block whose text becomes a value: no break out of it, no generation in it.
  Block captured(const char* name, int line, std::vector<std::string_view> ends) {
    const int loops = std::exchange(loops_, 0);
    ++captures_;
    Block body = closed(name, line, std::move(ends));
    --captures_;
    loops_ = loops;
    take();
    expect_end(Kind::block_end, "%}");
    return body;
  }

  void generation(Statement& statement, int line) {
    if (captures_ > 0)
      throw SyntaxFailure(line,
                          "'generation' inside of a macro, a set block or another 'generation' is not "
                          "supported: its place in the output would not be known");
    tree_.marks_generation = true;
    statement.body = captured("generation", line, {"endgeneration"});
  }

  const Token& take() {
    const Token& token = ExpressionParser::take();
    previous_ = token.text;
    return token;
  }

  SyntaxTree tree_;
  std::set<std::string> bound_;  // everything that is assigned somewhere
  std::string previous_;
  int loops_ = 0;
  int captures_ = 0;
};

}  // namespace

SyntaxTree parse(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes)
    throw SyntaxFailure(
        1, formatted("it has {} bytes, at most {} are allowed", source.size(), limits.source_bytes));
  if (!is_valid_utf8(source)) throw SyntaxFailure(1, "it is not valid UTF-8");
  return Parser(tokenize(source), limits.nesting).run();
}

}  // namespace plimsoll::jinja
