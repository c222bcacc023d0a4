// {"String": ...} or {"Regex": ...}: what Split and Replace look for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/json_part.h"
#include "text/regex.h"

namespace plimsoll {

class Pattern {
 public:
  // An expression that could match nothing is refused: the reference would put text between all characters.
  explicit Pattern(const JsonPart& json);

  // Calls found(begin, end) for each match, from left to right.
  template <typename Found>
  void for_each_match(std::string_view text, Found found) const {
    if (regex_) return regex_->for_each_match(text, found);
    for (size_t i = text.find(literal_); i != text.npos; i = text.find(literal_, i + literal_.size()))
      found(i, i + literal_.size());
  }
  // Appends `text` with every match replaced; false, and nothing appended, where there is none.
  bool replace(std::string_view text, std::string_view content, std::string& out) const;
  [[nodiscard]] int64_t resident_bytes() const { return regex_ ? regex_->resident_bytes() : 0; }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace plimsoll
