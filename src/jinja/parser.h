// Parses expressions from tokens; statements are added in parser.cc.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace plimsoll::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, int nesting) : tokens_(std::move(tokens)), limit_(nesting) {}

  // Without `if ... else` at the outermost level where `conditional` is false.
  ExpressionPtr expression(bool conditional = true);
  // One expression, or several with commas between them: a tuple. `end` is a name that ends it too.
  ExpressionPtr tuple(bool conditional = true, std::string_view end = "");
  // "| name(...) | name": applied to `subject`.
  ExpressionPtr filters(ExpressionPtr subject);

 protected:
  // Counts what is open in the source; bounds the parser's own recursion.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  [[nodiscard]] const Token& here() const { return tokens_[at_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  [[nodiscard]] bool at_name(std::string_view name) const {
    return here().kind == Kind::name && here().text == name;
  }
  [[nodiscard]] bool at_op(std::string_view op) const { return here().kind == Kind::op && here().text == op; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  std::string expect_name(const char* what);
  [[noreturn]] void refuse(const std::string& message) const { throw SyntaxFailure(here().line, message); }

  ExpressionPtr make(ExpressionKind kind, int line, std::vector<ExpressionPtr> args, std::string name = "");

  // Names that are called, with the line of the first call: each must be a function or a macro.
  std::vector<std::pair<std::string, int>> called_;

 private:
  ExpressionPtr logical_or();
  ExpressionPtr logical_and();
  ExpressionPtr logical_not();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr text();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters_and_tests(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr subject);
  ExpressionPtr attribute(ExpressionPtr object);
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr filter(ExpressionPtr subject);
  void arguments(Expression& node);
  [[nodiscard]] bool ends_tuple(std::string_view end) const;
  [[nodiscard]] std::optional<Comparison> comparison_here() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int limit_;
  int level_ = 0;
};

}  // namespace plimsoll::jinja
