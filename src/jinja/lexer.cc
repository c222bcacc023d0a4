#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/format.h"
#include "jinja/python_text.h"
#include "unicode/utf8.h"

namespace plimsoll::jinja {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// CRLF and CR become LF; one newline at the end goes.
std::string normalised(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_part();
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool ahead(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  [[nodiscard]] char here() const { return at_ < source_.size() ? source_[at_] : '\0'; }
  [[noreturn]] void refuse(const std::string& message) const { throw SyntaxFailure(line_, message); }

  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
    line_starting_ = bytes > 0 && source_[at_ - 1] == '\n';
  }
  void skip_space() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    if (const size_t bytes = rest.size() - strip_left(rest).size(); bytes > 0) advance(bytes);
  }
  void add(Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text), 0, 0.0}); }
  // '-' or '+' where one stands here.
  char sign() {
    const char c = here();
    if (c != '-' && c != '+') return '\0';
    advance(1);
    return c;
  }

  // Text up to the next tag, and the tag.
  void next_part() {
    const size_t begin = next_tag();
    const std::string_view text = std::string_view(source_).substr(at_, begin - at_);
    if (begin == source_.size()) {
      add_data(text);
      advance(text.size());
      return;
    }
    const char kind = source_[begin + 1];
    const char control = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    add_data(stripped(text, control, kind == '{'));
    advance(begin - at_);
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      advance(2);
      sign();
      add(Kind::print_begin, "{{");
      expression("}}", Kind::print_end);
    } else if (!raw()) {
      advance(2);
      sign();
      add(Kind::block_begin, "{%");
      expression("%}", Kind::block_end);
    }
  }

  [[nodiscard]] size_t next_tag() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i)
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    return source_.size();
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Kind::data, std::string(text));
  }

  // The text before a tag: without white space at its end for '-'; without the blanks of the tag's line where
  // nothing else stands before the tag, unless it prints or has '+'.
  [[nodiscard]] std::string_view stripped(std::string_view text, char control, bool prints) const {
    if (control == '-') return strip_right(text);
    if (control == '+' || prints) return text;
    const size_t newline = text.rfind('\n');
    const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if ((start > 0 || line_starting_) && is_space(text.substr(start))) return text.substr(0, start);
    return text;
  }

  void comment() {
    const int begun = line_;
    advance(2);
    sign();
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) throw SyntaxFailure(begun, "a comment is not closed: '#}' is missing");
    const char control = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_block(control);
  }

  void after_block(char control) {
    if (control == '-') {
      skip_space();
    } else if (control != '+' && here() == '\n') {
      advance(1);
    }
  }

  // "{% raw %}...{% endraw %}"; false where another block stands here.
  bool raw() {
    const size_t start = at_;
    const int begun = line_;
    advance(2);
    sign();
    skip_space();
    bool is_raw = ahead("raw");
    if (is_raw) {
      advance(3);
      skip_space();
      is_raw = ahead("-%}") || ahead("%}");
    }
    if (!is_raw) {
      at_ = start;
      line_ = begun;
      return false;
    }
    const bool strips = here() == '-';
    advance(strips ? 3 : 2);
    if (strips) skip_space();
    raw_text(begun);
    return true;
  }

  void raw_text(int begun) {
    for (size_t begin = at_; (begin = source_.find("{%", begin)) != std::string::npos; ++begin) {
      size_t end = begin + 2;
      const char control = end < source_.size() ? source_[end] : '\0';
      if (control == '-' || control == '+') ++end;
      const auto skip = [&] {
        const std::string_view rest = std::string_view(source_).substr(end);
        end += rest.size() - strip_left(rest).size();
      };
      skip();
      if (source_.compare(end, 6, "endraw") != 0) continue;
      end += 6;
      skip();
      const char closing =
          end < source_.size() && (source_[end] == '-' || source_[end] == '+') ? source_[end] : '\0';
      if (closing != '\0') ++end;
      if (source_.compare(end, 2, "%}") != 0) continue;
      add_data(stripped(std::string_view(source_).substr(at_, begin - at_), control, false));
      advance(end + 2 - at_);
      after_block(closing);
      return;
    }
    throw SyntaxFailure(begun, "'raw' is not closed: 'endraw' is missing");
  }

  // Tokens up to `closing`, which counts only outside of brackets.
  void expression(std::string_view closing, Kind end) {
    const int begun = line_;
    while (true) {
      skip_space();
      if (at_ == source_.size())
        throw SyntaxFailure(begun, formatted("a tag is not closed: '{}' is missing", closing));
      if (brackets_.empty() && close(closing, end)) return;
      token();
    }
  }

  bool close(std::string_view closing, Kind end) {
    const bool block = end == Kind::block_end;
    const char control = here();
    const bool controlled = control == '-' || (control == '+' && block);
    if (!ahead(closing) && !(controlled && std::string_view(source_).substr(at_ + 1).starts_with(closing)))
      return false;
    const bool has_control = !ahead(closing);
    add(end, std::string(closing));
    advance(closing.size() + (has_control ? 1 : 0));
    if (block)
      after_block(has_control ? control : '\0');
    else if (has_control)
      skip_space();
    return true;
  }

  void token() {
    const char c = here();
    if (is_digit(c))
      number();
    else if (is_name_start(c))
      name();
    else if (c == '\'' || c == '"')
      string(c);
    else
      op();
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && is_name_part(source_[end])) ++end;
    add(Kind::name, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  [[nodiscard]] size_t digits_end(size_t from) const {
    while (from < source_.size() && (is_digit(source_[from]) || source_[from] == '_')) ++from;
    return from;
  }

  void number() {
    size_t end = digits_end(at_);
    bool real = false;
    const auto digit_at = [this](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    // "x.0.1" is a subscript of a subscript.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
        real = true;
        end = digits_end(end + 1);
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t sign =
            end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+') ? 1 : 0;
        if (digit_at(end + 1 + sign)) {
          real = true;
          end = digits_end(end + 1 + sign);
        }
      }
    }
    if (end < source_.size() && is_name_part(source_[end])) refuse("a number is expected, as 12 or 1.5");
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Token token{real ? Kind::real : Kind::integer, line_, text, 0, 0.0};
    const char* last = text.data() + text.size();
    const auto read = real ? std::from_chars(text.data(), last, token.real)
                           : std::from_chars(text.data(), last, token.integer);
    if (read.ec != std::errc() || read.ptr != last) refuse(formatted("the number {} is out of range", text));
    if (!real && text.size() > 1 && text[0] == '0' && token.integer != 0)
      refuse("a number starts with 0: " + text);
    tokens_.push_back(std::move(token));
    advance(end - at_);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("a text is not closed: its quote is missing");
    add(Kind::string, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  // Python's escapes; a backslash before any other character stays.
  std::string unescape(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view kNames = "\\'\"abfnrtv";
      static constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
      if (const size_t known = kNames.find(c); known != std::string_view::npos) {
        out += kValues[known];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
        append_code(text.substr(i + 1, digits), digits, 16, out);
        i += digits;
      } else if (c >= '0' && c <= '7') {
        size_t digits = 1;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' && text[i + digits] <= '7')
          ++digits;
        append_code(text.substr(i, digits), digits, 8, out);
        i += digits - 1;
      } else if (c == 'N') {
        refuse("\\N{...} in a text is not supported; use \\uXXXX");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void append_code(std::string_view digits, size_t expected, int base, std::string& out) const {
    uint32_t code = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() != expected || read.ec != std::errc() || read.ptr != digits.data() + digits.size())
      refuse("a text has an unfinished escape");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      refuse("a text has an escape that is no character");
    append_utf8(code, out);
  }

  void op() {
    static constexpr std::array<std::string_view, 27> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]",
        "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "@"};
    for (const std::string_view text : kOperators) {
      if (!ahead(text) || text == ";" || text == "@") continue;
      balance(text.front());
      add(Kind::op, std::string(text));
      advance(text.size());
      return;
    }
    const Utf8Char c = decode_utf8(source_.data() + at_);
    refuse(formatted("unexpected character '{}'", source_.substr(at_, c.bytes)));
  }

  void balance(char c) {
    if (c == '(' || c == '[' || c == '{') {
      brackets_ += c == '(' ? ')' : (c == '[' ? ']' : '}');
      return;
    }
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) refuse(formatted("unexpected '{}'", c));
    if (brackets_.back() != c) refuse(formatted("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // closing ones that are still to come
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case Kind::end:
      return "the end of the template";
    case Kind::data:
      return "text outside of tags";
    case Kind::string:
      return formatted("the text '{}'", token.text.substr(0, 40));
    default:
      return formatted("'{}'", token.text.substr(0, 40));
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalised(source)).run(); }

}  // namespace plimsoll::jinja
