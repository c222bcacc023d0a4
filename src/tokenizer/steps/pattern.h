// The pattern that Split and Replace look for: {"String": ...} or {"Regex": ...}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/files/json_part.h"
#include "unicode/regex.h"

namespace plimsoll {

class Pattern {
 public:
  // An expression that could match nothing is refused: the reference would put text between all characters.
  explicit Pattern(const JsonPart& json);

  // Calls found(begin, end) for each match, from left to right.
  template <typename Found>
  void for_each_match(std::string_view text, Found found) const {
    if (regex_) return regex_->for_each_match(text, found);
    for (size_t i = find(text, 0); i != text.npos; i = find(text, i + literal_.size()))
      found(i, i + literal_.size());
  }
  // Appends `text` with every match replaced; false, and nothing appended, without a match. Throws TextError
  // before `out` is longer than `most` bytes.
  bool replace(std::string_view text, std::string_view content, size_t most, std::string& out) const;
  [[nodiscard]] int64_t resident_bytes() const { return regex_ ? regex_->resident_bytes() : 0; }

 private:
  // Linear whatever the literal is.
  [[nodiscard]] size_t find(std::string_view text, size_t from) const;

  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace plimsoll
