// Matches users' regular expressions with the names of modules and weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace plimsoll {

// A regular expression that is tried at the beginning of a name.
class NamePattern {
 public:
  // `given` is the part of `expression` that the user wrote, under `key`. Throws UsageError for one that is
  // no regular expression.
  NamePattern(const std::string& expression, const std::string& given, const char* key);

  // The text of group 1, "" where it matched nothing; none where the name does not match. Throws UsageError
  // where that takes too long.
  [[nodiscard]] std::optional<std::string> match(const std::string& name) const;

 private:
  std::string place_;
  std::shared_ptr<void> code_;
};

// Letters, digits and _ alone: no expression, and a name without a layer's number.
bool is_plain_name(const std::string& name);
// Returns true if the end of a module's name stands for that module of every block: a number in it is no
// block's.
bool names_no_block(const std::string& module_end);

}  // namespace plimsoll
