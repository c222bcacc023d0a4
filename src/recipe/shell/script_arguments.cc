#include "recipe/shell/script_arguments.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "base/strings.h"
#include "recipe/shell/variables.h"

namespace plimsoll {
namespace {

constexpr size_t kMostTokens = 1'000'000;

enum class TokenKind : unsigned char { name, number, text, sign };
struct Token {
  TokenKind kind = TokenKind::sign;
  std::string text;  // of a text: what it holds
  int line = 0;
};
// A statement of Python: all that stands in one line, or in several within brackets.
struct Statement {
  std::vector<Token> tokens;
  size_t indent = 0;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Statement> read() {
    while (at_ < text_.size() && read_ < kMostTokens) step();
    end();
    return std::move(statements_);
  }

 private:
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void end() {
    if (!now_.tokens.empty()) statements_.push_back(std::move(now_));
    now_ = {};
    indent_ = 0;
    begins_ = true;
  }

  void add(TokenKind kind, std::string text) {
    if (now_.tokens.empty()) now_.indent = indent_;
    begins_ = false;
    ++read_;
    now_.tokens.push_back({kind, std::move(text), line_});
  }

  void step() {
    const char c = peek();
    if (c == '\n') {
      ++at_;
      if (depth_ == 0) end();
      ++line_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
      ++line_;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (begins_) indent_ += c == '\t' ? 8U : 1U;
      ++at_;
    } else if (c == '"' || c == '\'') {
      quoted();
    } else if (is_name_char(c)) {
      word();
    } else {
      if (c == '(' || c == '[' || c == '{') ++depth_;
      if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
      add(TokenKind::sign, std::string(1, c));
      ++at_;
    }
  }

  void word() {
    const size_t begin = at_;
    const bool is_number = std::isdigit(static_cast<unsigned char>(peek())) != 0;
    while (is_name_char(peek()) || (is_number && (peek() == '.' || is_exponent_sign()))) ++at_;
    const std::string text(text_.substr(begin, at_ - begin));
    const bool is_prefix = !is_number && text.size() <= 2 && (peek() == '"' || peek() == '\'');
    if (!is_prefix) return add(is_number ? TokenKind::number : TokenKind::name, text);
    const bool is_filled_in = text.find_first_of("fFbB") != std::string::npos;
    quoted();
    if (is_filled_in) now_.tokens.back().kind = TokenKind::sign;  // no value that stands there
  }
  [[nodiscard]] bool is_exponent_sign() const {
    return (peek() == '-' || peek() == '+') && at_ > 0 && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
  }

  void quoted() {
    const char sign = peek();
    const bool is_long = peek(1) == sign && peek(2) == sign;
    const std::string end(is_long ? 3 : 1, sign);
    const int line = line_;
    at_ += end.size();
    std::string text;
    while (at_ < text_.size() && text_.substr(at_, end.size()) != end) {
      if (peek() == '\n' && !is_long) break;
      if (peek() == '\\' && at_ + 1 < text_.size()) ++at_;
      if (peek() == '\n') ++line_;
      text += text_[at_++];
    }
    at_ = std::min(at_ + end.size(), text_.size());
    add(TokenKind::text, std::move(text));
    now_.tokens.back().line = line;
  }

  std::string_view text_;
  size_t at_ = 0, indent_ = 0, read_ = 0;
  int line_ = 1, depth_ = 0;
  bool begins_ = true;
  Statement now_;
  std::vector<Statement> statements_;
};

using Tokens = std::vector<Token>;

bool is_sign(const Token& token, std::string_view text) {
  return token.kind == TokenKind::sign && token.text == text;
}

// The arguments of the call whose parenthesis is at `open`, each as its tokens.
std::vector<Tokens> arguments_of(const Tokens& tokens, size_t open) {
  std::vector<Tokens> arguments(1);
  int depth = 0;
  for (size_t i = open; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const bool opens = is_sign(token, "(") || is_sign(token, "[") || is_sign(token, "{");
    const bool closes = is_sign(token, ")") || is_sign(token, "]") || is_sign(token, "}");
    if (closes && --depth == 0) break;
    if (depth == 1 && is_sign(token, ","))
      arguments.emplace_back();
    else if (depth > 0)
      arguments.back().push_back(token);
    if (opens) ++depth;
  }
  return arguments;
}

// The value of NAME=... among a call's arguments.
std::optional<Tokens> named(const std::vector<Tokens>& arguments, std::string_view name) {
  for (const Tokens& argument : arguments)
    if (argument.size() > 2 && argument[0].text == name && is_sign(argument[1], "="))
      return Tokens(argument.begin() + 2, argument.end());
  return std::nullopt;
}

Node scalar(std::string text, bool quoted) {
  Node node;
  node.kind = Node::Kind::scalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

// A number, a text, True or False, or a list of these; nothing for all else, None among it.
std::optional<Node> literal(Tokens tokens) {
  if (tokens.size() > 2 && is_sign(tokens.front(), "[") && is_sign(tokens.back(), "]")) {
    Node list;
    list.kind = Node::Kind::list;
    for (Tokens& item : arguments_of(tokens, 0)) {
      if (item.empty()) continue;  // behind the last comma
      const auto value = item.front().text == "[" ? std::nullopt : literal(std::move(item));
      if (!value) return std::nullopt;
      list.items.push_back(*value);
    }
    return list;
  }
  const bool negative = tokens.size() == 2 && is_sign(tokens[0], "-");
  if (tokens.size() != (negative ? 2U : 1U)) return std::nullopt;
  const Token& token = tokens.back();
  if (token.kind == TokenKind::number) {
    std::string digits = token.text;
    std::erase(digits, '_');
    return scalar((negative ? "-" : "") + digits, false);
  }
  if (negative) return std::nullopt;
  if (token.kind == TokenKind::text) return scalar(token.text, false);
  if (token.text == "True" || token.text == "False")
    return scalar(token.text == "True" ? "true" : "false", false);
  return std::nullopt;
}

// The default of a field: what stands behind `=`, or the default of field(...).
std::optional<Node> field_default(const Tokens& tokens, size_t at) {
  Tokens value(tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.end());
  const size_t name = value.size() > 3 && value[0].text == "dataclasses" ? 2 : 0;
  const bool is_field =
      value.size() > name + 1 && value[name].text == "field" && is_sign(value[name + 1], "(");
  if (!is_field) return literal(std::move(value));
  const auto arguments = arguments_of(value, name + 1);
  if (const auto given = named(arguments, "default")) return literal(*given);
  const auto made = named(arguments, "default_factory");  // lambda: [...]
  const bool is_lambda =
      made && made->size() > 2 && made->front().text == "lambda" && is_sign((*made)[1], ":");
  return is_lambda ? literal(Tokens(made->begin() + 2, made->end())) : std::nullopt;
}

// TrainingArguments of transformers, configurations of TRL's trainers, and PEFT's.
bool is_configuration(const std::string& callee) {
  return callee.ends_with("TrainingArguments") || callee == "SFTConfig" || callee == "DPOConfig" ||
         callee == "RewardConfig" || callee == "SFTTrainer" || callee == "LoraConfig" ||
         callee == "from_pretrained";
}

// A keyword of such a call as a command has it; "" where commands have no such argument.
std::string argument_name(const std::string& callee, const std::string& keyword) {
  const bool is_of_bits = keyword == "load_in_8bit" || keyword == "load_in_4bit";
  if (callee == "from_pretrained") return is_of_bits ? keyword : "";
  if (callee != "LoraConfig") return keyword;
  if (keyword == "r") return "lora_r";
  if (keyword == "target_modules") return "lora_target_modules";
  return keyword == "lora_alpha" || keyword == "lora_dropout" || keyword.starts_with("use_") ? keyword : "";
}

// The argument of `args.lr`; "" where something else stands there.
std::string attribute(const Tokens& tokens) {
  const bool is_attribute = tokens.size() == 3 && tokens[0].kind == TokenKind::name &&
                            is_sign(tokens[1], ".") && tokens[2].kind == TokenKind::name;
  return is_attribute ? tokens[2].text : "";
}

// torch.cuda.is_bf16_supported() is true on what is trained on today.
std::optional<Node> asks_for_bf16(const Tokens& tokens) {
  const bool asks = std::ranges::any_of(tokens, [](const Token& one) {
    return one.text == "is_bf16_supported" || one.text == "is_bfloat16_supported";
  });
  if (!asks) return std::nullopt;
  return scalar(tokens.front().text == "not" ? "false" : "true", false);
}

// `val_set_size > 0`, `not args.fast`, `eval_strategy != "no"`: fills in what is asked of which argument. False for
// other conditions.
bool read_condition(Tokens tokens, ScriptChoice& choice) {
  if (!tokens.empty() && tokens.front().text == "not") {
    choice.is_denied = true;
    tokens.erase(tokens.begin());
  }
  const size_t name = tokens.size() > 2 && is_sign(tokens[1], ".") ? 2 : 0;
  if (tokens.size() <= name || tokens[name].kind != TokenKind::name) return false;
  choice.argument = tokens[name].text;
  if (tokens.size() == name + 1) return true;
  size_t at = name + 1;
  for (;
       at < tokens.size() && tokens[at].kind == TokenKind::sign && tokens[at].text.find_first_of("<>=!") == 0;
       ++at)
    choice.test += tokens[at].text;
  const auto than = literal(Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.end()));
  if (!than || than->kind != Node::Kind::scalar || choice.test.empty()) return false;
  choice.than = *than;
  return true;
}

// `A if CONDITION else B`, or a condition alone, which is True or False.
std::optional<ScriptChoice> read_choice(const Tokens& tokens) {
  const auto begins = [&](std::string_view word) {
    return std::ranges::find_if(
        tokens, [&](const Token& one) { return one.kind == TokenKind::name && one.text == word; });
  };
  const auto condition = begins("if"), otherwise = begins("else");
  ScriptChoice choice;
  if (condition == tokens.end()) {
    choice.yes = scalar("true", false);
    choice.no = scalar("false", false);
    if (tokens.size() > 1 && read_condition(tokens, choice) && (!choice.test.empty() || choice.is_denied))
      return choice;
    return std::nullopt;
  }
  if (otherwise == tokens.end() || otherwise < condition) return std::nullopt;
  const auto yes = literal(Tokens(tokens.begin(), condition)),
             no = literal(Tokens(otherwise + 1, tokens.end()));
  if (!yes || !no || !read_condition(Tokens(condition + 1, otherwise), choice)) return std::nullopt;
  choice.yes = *yes;
  choice.no = *no;
  return choice;
}

class Reader {
 public:
  void read(const std::vector<Statement>& statements) {
    for (const Statement& statement : statements) {
      follow_blocks(statement);
      follow_class(statement);
      if (in_class_ && statement.indent == body_) read_field(statement);
      read_calls(statement);
      read_configurations(statement);
      read_assignment(statement);
      decorated_ = is_dataclass(statement);
    }
  }

  ScriptText take() {
    for (const std::string& name : started_)
      for (const auto& [argument, value, line] : parameters_[name]) add(argument, value, line);
    text_.always_adapts = always_in_ && (always_in_->empty() || *always_in_ == "main" ||
                                         *always_in_ == "train" || started_.contains(*always_in_));
    for (auto& [name, found] : found_)
      if (found.argument && !found.differs) text_.arguments.push_back(std::move(*found.argument));
    std::ranges::sort(text_.arguments, {}, &ScriptArgument::line);
    return std::move(text_);
  }

 private:
  struct Block {
    size_t indent = 0;
    std::string function;
    bool runs = false;  // whenever what it stands in does
  };
  struct Parameter {
    std::string name;
    std::optional<Node> value;
    int line = 0;
  };
  struct Found {
    std::optional<ScriptArgument> argument;
    bool differs = false;
  };

  // Blocks that the statement is in, and the parameters of functions.
  void follow_blocks(const Statement& statement) {
    const Tokens& tokens = statement.tokens;
    while (!blocks_.empty() && blocks_.back().indent >= statement.indent) blocks_.pop_back();
    const std::string& first = tokens.front().text;
    const bool begins = tokens.front().kind == TokenKind::name && is_sign(tokens.back(), ":");
    if (begins || first == "def")
      blocks_.push_back({statement.indent, first == "def" && tokens.size() > 1 ? tokens[1].text : "",
                         first == "def" || first == "with"});
    if (first == "def" && tokens.size() > 3 && is_sign(tokens[2], "("))
      for (const Tokens& one : arguments_of(tokens, 2)) {
        const auto equals = std::ranges::find_if(one, [](const Token& token) { return is_sign(token, "="); });
        if (one.size() > 2 && equals != one.end())
          parameters_[tokens[1].text].push_back(
              {one[0].text, literal(Tokens(equals + 1, one.end())), one[0].line});
      }
    for (size_t i = 0; i + 2 < tokens.size(); ++i)  // fire.Fire(train)
      if (tokens[i].text == "Fire" && is_sign(tokens[i + 1], "(")) started_.insert(tokens[i + 2].text);
  }
  // In no branch and no loop, apart from `if __name__ == "__main__"`.
  [[nodiscard]] bool is_always_run() const {
    return std::ranges::all_of(blocks_, [](const Block& one) { return one.runs; });
  }
  [[nodiscard]] std::string function() const {
    for (const Block& one : blocks_)
      if (!one.function.empty()) return one.function;
    return "";
  }

  static bool is_dataclass(const Statement& statement) {
    return is_sign(statement.tokens.front(), "@") &&
           std::ranges::any_of(statement.tokens, [](const Token& one) { return one.text == "dataclass"; });
  }

  // Classes of arguments are dataclasses, or made of transformers' and TRL's.
  void follow_class(const Statement& statement) {
    const Tokens& tokens = statement.tokens;
    if (tokens.front().text == "class" && tokens.front().kind == TokenKind::name) {
      const bool derives = std::any_of(tokens.begin() + 1, tokens.end(), [](const Token& base) {
        return base.text.ends_with("TrainingArguments") || base.text == "SFTConfig" ||
               base.text == "DPOConfig";
      });
      in_class_ = decorated_ || derives;
      class_ = statement.indent;
      body_ = 0;
    } else if (in_class_ && statement.indent <= class_) {
      in_class_ = false;
    } else if (in_class_ && body_ == 0) {
      body_ = statement.indent;
    }
  }

  // NAME: TYPE = DEFAULT
  void read_field(const Statement& statement) {
    const Tokens& tokens = statement.tokens;
    if (tokens.size() < 5 || tokens[0].kind != TokenKind::name || !is_sign(tokens[1], ":")) return;
    int depth = 0;
    for (size_t i = 2; i < tokens.size(); ++i) {
      if (is_sign(tokens[i], "[") || is_sign(tokens[i], "(")) ++depth;
      if (is_sign(tokens[i], "]") || is_sign(tokens[i], ")")) --depth;
      if (depth == 0 && is_sign(tokens[i], "="))
        return add(tokens[0].text, field_default(tokens, i + 1), tokens[0].line);
    }
  }

  // parser.add_argument("--name", ..., default=DEFAULT)
  void read_calls(const Statement& statement) {
    const Tokens& tokens = statement.tokens;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (tokens[i].text != "add_argument" || !is_sign(tokens[i + 1], "(")) continue;
      const auto arguments = arguments_of(tokens, i + 1);
      std::string name;
      for (const Tokens& argument : arguments)
        if (argument.size() == 1 && argument[0].kind == TokenKind::text && argument[0].text.starts_with("--"))
          if (name.empty()) name = argument[0].text.substr(2);
      if (name.empty()) continue;
      std::ranges::replace(name, '-', '_');
      const auto given = named(arguments, "default");
      const auto action = named(arguments, "action");
      const bool is_flag = action && action->size() == 1 && action->front().text.starts_with("store_");
      if (given)
        add(name, literal(*given), tokens[i].line);
      else if (is_flag)
        add(name, scalar(action->front().text == "store_true" ? "false" : "true", false), tokens[i].line);
    }
  }

  // TrainingArguments(learning_rate=args.lr, num_train_epochs=3)
  void read_configurations(const Statement& statement) {
    const Tokens& tokens = statement.tokens;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const std::string& callee = tokens[i].text;
      const bool finds_answers =
          callee == "DataCollatorForCompletionOnlyLM" || callee == "train_on_responses_only";
      if (finds_answers && is_sign(tokens[i + 1], "(") && text_.answers == 0) text_.answers = tokens[i].line;
      if (!is_configuration(callee) || !is_sign(tokens[i + 1], "(") || tokens.front().text == "class")
        continue;
      if (callee == "LoraConfig" && text_.adapters == 0) {
        text_.adapters = tokens[i].line;
        always_in_ = is_always_run() ? std::optional(function()) : std::nullopt;
      }
      for (const Tokens& one : arguments_of(tokens, i + 1)) {
        if (one.size() < 3 || !is_sign(one[1], "=")) continue;
        const std::string name = argument_name(callee, one[0].text);
        const Tokens given(one.begin() + 2, one.end());
        if (name.empty()) continue;
        if (const std::string argument = attribute(given); !argument.empty())
          text_.uses.push_back({argument, name, one[0].line});
        else if (auto value = asks_for_bf16(given) ? asks_for_bf16(given) : literal(given))
          add(name, std::move(value), one[0].line);
        else if (auto choice = read_choice(given)) {
          choice->name = name;
          choice->line = one[0].line;
          text_.choices.push_back(std::move(*choice));
        } else if (given.size() > 1)  // one name alone may be anything
          text_.uses.push_back({"", name, one[0].line});
      }
    }
  }

  // args.max_seq_length = config.block_size
  void read_assignment(const Statement& statement) {
    const Tokens& tokens = statement.tokens;
    if (tokens.size() != 7 || !is_sign(tokens[1], ".") || !is_sign(tokens[3], "=")) return;
    const std::string argument = attribute(Tokens(tokens.begin() + 4, tokens.end()));
    if (!argument.empty()) text_.uses.push_back({argument, tokens[2].text, tokens[2].line});
  }

  void add(const std::string& name, std::optional<Node> value, int line) {
    Found& found = found_[name];
    if (found.argument || found.differs) {
      const bool same = found.argument && value && found.argument->value.text == value->text &&
                        found.argument->value.items.size() == value->items.size();
      found.differs = found.differs || !same;
    } else if (value) {
      found.argument = ScriptArgument{name, std::move(*value), line};
    } else {
      found.differs = true;
    }
  }

  bool in_class_ = false, decorated_ = false;
  size_t class_ = 0, body_ = 0;
  std::map<std::string, Found> found_;
  std::vector<Block> blocks_;
  std::map<std::string, std::vector<Parameter>> parameters_;  // of functions
  std::set<std::string> started_;                             // functions whose parameters are arguments
  std::optional<std::string> always_in_;                      // the function that always makes adapters
  ScriptText text_;
};

}  // namespace

ScriptText read_script(std::string_view text) {
  Reader reader;
  reader.read(Lexer(text).read());
  return reader.take();
}

}  // namespace plimsoll
