// A text of a pattern and values, put together by libfmt: formatted("{}: has {} rows", path, rows).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace plimsoll {

// A value of a pattern: a text, a character or a whole number. Numbers with a fraction and sizes have
// functions of their own (base/strings.h, base/units.h); a bool or an int8_t could be meant in two ways.
class FormatValue {
 public:
  enum class Kind : uint8_t { text, character, whole, natural };

  template <class T>
  requires std::convertible_to<const T&, std::string_view> FormatValue(const T& text)  // NOLINT: implicit
      : kind_(Kind::text), text_(text) {}
  template <class T>
  requires(std::same_as<T, char>) FormatValue(T character)  // NOLINT: implicit
      : kind_(Kind::character), number_(static_cast<unsigned char>(character)) {}
  template <std::signed_integral T>
  requires(sizeof(T) > 1) FormatValue(T whole)  // NOLINT: implicit
      : kind_(Kind::whole), number_(static_cast<uint64_t>(whole)) {}
  template <std::unsigned_integral T>
  requires(sizeof(T) > 1) FormatValue(T natural)  // NOLINT: implicit
      : kind_(Kind::natural), number_(natural) {}

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] uint64_t number() const { return number_; }

 private:
  Kind kind_;
  std::string_view text_;
  uint64_t number_ = 0;
};

// A pattern with as many {} as there are values; another one does not compile. {{ and }} are braces. The
// check is much shorter than libfmt's own, which the compiler would run for each of a thousand patterns.
template <size_t kValues>
class FormatPattern {
 public:
  consteval FormatPattern(const char* text) : text_(text) {  // NOLINT: implicit
    size_t places = 0;
    for (; *text != '\0'; ++text) {
      if (*text != '{' && *text != '}') continue;
      const bool doubled = text[1] == *text;
      if (!doubled && (*text == '}' || text[1] != '}')) throw "a brace that is neither doubled nor of {}";
      if (!doubled) ++places;
      ++text;
    }
    if (places != kValues) throw "a pattern has more or fewer {} than there are values";
  }
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  const char* text_;
};

std::string format_values(std::string_view pattern, std::initializer_list<FormatValue> values);

template <class... T>
std::string formatted(FormatPattern<sizeof...(T)> pattern, const T&... values) {
  return format_values(pattern.text(), {FormatValue(values)...});
}

}  // namespace plimsoll
