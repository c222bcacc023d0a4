// Regular expressions of tokenizer files that no hand-written scanner knows, run by PCRE2.
//
// The files are written for Oniguruma's Ruby syntax. Where the two differ in meaning the expression is
// translated (\s, ^, $) or refused by name (\w, \b, \h, class operators, ...), never run with another
// meaning. One difference stays: characters younger than PCRE2's Unicode tables (14.0 in 10.42) are completed
// for the major categories \p{L M N P S} only, not for scripts and minor ones.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

class Regex {
 public:
  // Throws UsageError, naming `where`, for an expression that does not compile or would mean something else.
  Regex(std::string_view expression, const std::string& where);

  // Calls `found(begin, end)` with the byte range of every match in `text` (valid UTF-8), empty ones left
  // out. Throws TextError where the expression needs more than its limits: for one match 10 million
  // backtracks and 32 MiB; for all that need more than 1,000, together 10 million and 1,000 for each byte.
  void for_each_match(std::string_view text, const std::function<void(size_t, size_t)>& found) const;
  // An empty match is possible.
  [[nodiscard]] bool matches_nothing() const;
  [[nodiscard]] int64_t resident_bytes() const;

 private:
  std::string where_;
  std::shared_ptr<void> code_;
  std::vector<std::shared_ptr<void>> limits_;  // one for each of the numbers of backtracks that are tried
};

// The PCRE2 spelling of an Oniguruma expression; exposed for tests.
std::string translate_to_pcre2(std::string_view expression, const std::string& where);

}  // namespace plimsoll
