#include "recipe/shell/words.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace plimsoll {
namespace {

class ShellLexer {
 public:
  explicit ShellLexer(std::string_view text) : text_(text) {}

  std::vector<ShellCommand> read() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char take() {
    if (text_[at_] == '\n') ++line_;
    return text_[at_++];
  }

  void add(char c, Quote quote) {
    if (!in_word_) {
      in_word_ = true;
      word_ = {};
      word_.line = line_;
    }
    if (word_.pieces.empty() || word_.pieces.back().quote != quote) word_.pieces.push_back({"", quote});
    word_.pieces.back().text += c;
  }
  void add(std::string_view part, Quote quote) {
    for (const char c : part) add(c, quote);
  }

  void end_word() {
    if (in_word_) words().push_back(std::move(word_));
    in_word_ = false;
  }
  void end_command(ShellLink next = ShellLink::always) {
    end_word();
    array_open_ = false;
    const bool is_empty = command_.words.empty();
    if (is_empty && next == ShellLink::always) return;  // a line's end behind && means nothing
    if (!is_empty) commands_.push_back(std::move(command_));
    command_ = {};
    command_.link = next;
  }
  // Words belong to an array that is open, or to the command.
  std::vector<ShellWord>& words() { return array_open_ ? command_.words.back().items : command_.words; }

  void step() {
    const char c = peek();
    if (c == '\\') return escape();
    if (c == '\'') return single_quotes();
    if (c == '"') return double_quotes();
    if (c == '$' || c == '`') return add(take_expansion(), Quote::none);
    if (c == '#' && !in_word_) return skip_line();
    if (c == '<' && peek(1) == '<' && peek(2) != '<') return heredoc();
    if (c == '>' || c == '<' || (c == '&' && peek(1) == '>')) return redirect();
    if (c == '(' && in_word_ && word_.pieces.back().text.ends_with('=')) return open_array();
    if (c == ')' && array_open_) {
      take();
      end_word();
      array_open_ = false;
      return;
    }
    if (c == '\n') return newline();
    if (c == '(' && begins_definition()) return end_definition();
    if (c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
      take();
      if (array_open_) return end_word();  // no shell takes it
      const bool links = (c == '&' || c == '|') && peek() == c;
      if (links) take();
      return end_command(!links ? ShellLink::always : c == '&' ? ShellLink::if_true : ShellLink::if_false);
    }
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      take();
      return end_word();
    }
    add(take(), Quote::none);
  }

  // NAME() and function NAME(), as the first words of a command.
  [[nodiscard]] bool begins_definition() const {
    const size_t close = text_.find_first_not_of(" \t", at_ + 1);
    const size_t words = command_.words.size() + (in_word_ ? 1 : 0);
    return !array_open_ && (words == 1 || words == 2) && close < text_.size() && text_[close] == ')' &&
           (words == 1 || plain_text(command_.words.front()) == "function");
  }

  void end_definition() {
    at_ = text_.find(')', at_) + 1;
    end_word();
    command_.defines = true;
    end_command();
  }

  void newline() {
    take();
    if (array_open_)
      end_word();
    else
      end_command();
    for (const std::string& end : std::exchange(heredocs_, {})) skip_heredoc(end);
  }

  void escape() {
    take();
    if (at_ >= text_.size()) return;
    if (peek() == '\r' && peek(1) == '\n') take();
    if (peek() == '\n') {
      take();  // the line continues
      return;
    }
    add(take(), Quote::single);
  }

  void single_quotes() {
    take();
    add("", Quote::single);
    open_quotes(Quote::single);
    while (at_ < text_.size() && peek() != '\'') add(take(), Quote::single);
    if (at_ < text_.size()) take();
  }

  void double_quotes() {
    take();
    open_quotes(Quote::doubled);
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '$' || peek() == '`') {
        add(take_expansion(), Quote::doubled);
      } else if (peek() == '\\' && std::string_view("\"\\$`\n").find(peek(1)) != std::string_view::npos) {
        take();
        const char c = take();
        if (c != '\n') add(c, c == '$' ? Quote::single : Quote::doubled);
      } else {
        add(take(), Quote::doubled);
      }
    }
    if (at_ < text_.size()) take();
  }

  // "" is a word as well.
  void open_quotes(Quote quote) {
    if (!in_word_) {
      in_word_ = true;
      word_ = {};
      word_.line = line_;
    }
    word_.pieces.push_back({"", quote});
  }

  // $NAME stays as it stands; ${...}, $(...) and `...` are taken whole.
  std::string take_expansion() {
    std::string taken(1, take());
    if (taken == "`") {
      while (at_ < text_.size() && peek() != '`') taken += take();
      if (at_ < text_.size()) taken += take();
      return taken;
    }
    if (peek() != '{' && peek() != '(' && peek() != '[') return taken;
    const char open = peek(), close = open == '{' ? '}' : open == '(' ? ')' : ']';
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = take();
      taken += c;
      if (c == open) ++depth;
      if (c == close && --depth == 0) break;
    }
    return taken;
  }

  void skip_line() {
    while (at_ < text_.size() && peek() != '\n') take();
  }

  // "2> file": the number, the sign, and what it names.
  void redirect() {
    if (in_word_) {
      const std::string written = plain_text(word_);
      const bool is_number =
          std::all_of(written.begin(), written.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
      if (is_number)
        in_word_ = false;
      else
        end_word();
    }
    while (peek() == '>' || peek() == '<' || peek() == '&') take();
    while (peek() == ' ' || peek() == '\t') take();
    const size_t before = words().size();
    while (at_ < text_.size() && std::string_view(" \t\n;|&)<>").find(peek()) == std::string_view::npos)
      step();
    end_word();
    if (words().size() > before) words().resize(before);
  }

  void heredoc() {
    at_ += 2;
    if (peek() == '-') take();
    std::string end;
    while (peek() == ' ') take();
    while (at_ < text_.size() && std::string_view(" \t\n;|&)").find(peek()) == std::string_view::npos) {
      const char c = take();
      if (c != '\'' && c != '"' && c != '\\') end += c;
    }
    heredocs_.push_back(end);
  }

  void skip_heredoc(const std::string& end) {
    while (at_ < text_.size()) {
      const size_t begin = at_;
      skip_line();
      std::string_view one = text_.substr(begin, at_ - begin);
      if (at_ < text_.size()) take();
      while (!one.empty() && one.front() == '\t') one.remove_prefix(1);
      if (one == end) return;
    }
  }

  void open_array() {
    take();
    end_word();
    array_open_ = true;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool in_word_ = false, array_open_ = false;
  ShellWord word_;
  ShellCommand command_;
  std::vector<ShellCommand> commands_;
  std::vector<std::string> heredocs_;
};

}  // namespace

std::vector<ShellCommand> read_shell_commands(std::string_view text) { return ShellLexer(text).read(); }

std::string plain_text(const ShellWord& word) {
  std::string text;
  for (const ShellPiece& piece : word.pieces) text += piece.text;
  return text;
}

}  // namespace plimsoll
