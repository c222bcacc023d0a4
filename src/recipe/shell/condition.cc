#include "recipe/shell/condition.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/strings.h"

namespace plimsoll {
namespace {

// One side of a test; nothing where only the machine knows it.
std::optional<std::string> operand(const ShellWord& word, const ShellVariables& variables) {
  std::string text = join(variables.expand(word), " ");
  if (is_unresolved(text)) return std::nullopt;
  return text;
}

std::optional<bool> compare(const std::string& left, const std::string& sign, const std::string& right) {
  const bool is_pattern = right.find_first_of("*?[") != std::string::npos;
  if (sign == "=" || sign == "==") return is_pattern ? std::nullopt : std::optional(left == right);
  if (sign == "!=") return is_pattern ? std::nullopt : std::optional(left != right);
  const auto a = whole_arithmetic(left), b = whole_arithmetic(right);
  if (!a || !b) return std::nullopt;
  if (sign == "-eq") return *a == *b;
  if (sign == "-ne") return *a != *b;
  if (sign == "-gt") return *a > *b;
  if (sign == "-ge") return *a >= *b;
  if (sign == "-lt") return *a < *b;
  if (sign == "-le") return *a <= *b;
  return std::nullopt;
}

std::optional<bool> inside(std::span<const ShellWord> words, const ShellVariables& variables) {
  if (!words.empty() && plain_text(words.front()) == "!") {
    const auto rest = inside(words.subspan(1), variables);
    return rest ? std::optional(!*rest) : std::nullopt;
  }
  const bool asks_length =
      words.size() == 2 && (plain_text(words[0]) == "-n" || plain_text(words[0]) == "-z");
  if (words.size() == 1 || asks_length) {
    const auto value = operand(words.back(), variables);
    if (!value) return std::nullopt;
    return asks_length && plain_text(words[0]) == "-z" ? value->empty() : !value->empty();
  }
  if (words.size() != 3) return std::nullopt;
  const auto left = operand(words[0], variables), right = operand(words[2], variables);
  return left && right ? compare(*left, plain_text(words[1]), *right) : std::nullopt;
}

}  // namespace

std::optional<bool> read_condition(const ShellCommand& command, const ShellVariables& variables) {
  std::span<const ShellWord> words = command.words;
  bool is_negated = false;
  while (!words.empty() && plain_text(words.front()) == "!") {
    is_negated = !is_negated;
    words = words.subspan(1);
  }
  if (words.empty()) return std::nullopt;
  const std::string name = plain_text(words.front());
  const std::string last = plain_text(words.back());
  const bool is_test = name == "test" || (name == "[" && last == "]") || (name == "[[" && last == "]]");
  std::optional<bool> result;
  if (is_test) {
    result = inside(words.subspan(1, words.size() - (name == "test" ? 1 : 2)), variables);
  } else if (words.size() == 1) {
    const auto word = operand(words.front(), variables);
    if (word && (*word == "true" || *word == ":")) result = true;
    if (word && *word == "false") result = false;
  }
  if (result && is_negated) result = !*result;
  return result;
}

}  // namespace plimsoll
