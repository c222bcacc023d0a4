// Expressions over squeezed text (log_scanner.h), run by PCRE2 under limits of time and memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace plimsoll::doctor {

// Written as people read messages: blanks count for nothing, and {name:size}, {name:count}, {name:word} and
// {name:share} stand for a number with its unit, a whole number, a name without blanks, and a decimal;
// {name:number} for a whole number that a line break may lie in, since something else than a blank ends it.
class Expression {
 public:
  // Throws InternalError for one that does not compile: all of them are ours.
  explicit Expression(std::string_view text);

  using Groups = std::map<std::string, std::string, std::less<>>;
  // Sets the named groups of the first match, those that took part; false where nothing matches, and where
  // the search exceeds its limits.
  bool match(std::string_view text, Groups& groups) const;
  // Calls `found` for each match, from left to right, at most `most` times.
  void for_each(std::string_view text, size_t most, const std::function<void(const Groups&)>& found) const;

 private:
  bool match_from(std::string_view text, size_t start, Groups& groups, size_t& end) const;

  std::shared_ptr<void> code_;
};

}  // namespace plimsoll::doctor
