#include "base/outer_split.h"

namespace plimsoll {

std::vector<std::string> outer_split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts(1);
  char quote = '\0';
  int depth = 0;
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (depth <= 0 && separators.find(c) != std::string_view::npos) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  return parts;
}

}  // namespace plimsoll
