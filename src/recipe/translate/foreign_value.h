// Reads values as other tools' recipes write them: YAML 1.1 and Python spell more than ours does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "recipe/aliases.h"
#include "recipe/document/document.h"

namespace plimsoll {

// A scalar that reads as `text`, at the place of `at`.
Node scalar_at(const Node& at, std::string_view text);
// A list of words.
Node list_at(const Node& at, const std::vector<std::string>& words);

// true, True, yes, on and their opposites.
std::optional<bool> read_foreign_flag(const Node& node);
// Nothing, false, 0, an empty list or text, or words such as none and no.
bool is_off(const Node& node);
// "a", [a, b] and "a, b" alike.
std::optional<std::vector<std::string>> read_foreign_names(const Node& node);
// 3 or 3.0.
std::optional<int64_t> read_foreign_whole(const Node& node);
std::optional<double> read_foreign_number(const Node& node);

// The word as the row's list spells it: true, false or the text; of a `_component_` the class's or function's
// own name in small letters.
std::string word_of(const Node& node, std::string_view key);

// One row's result for a value.
struct ForeignValue {
  enum class Outcome : unsigned char { mapped, no_effect, refused };
  Outcome outcome = Outcome::mapped;
  Node node;           // mapped: as our key reads it
  std::string reason;  // else
};
ForeignValue read_foreign(const Alias& row, const std::string& key, const Node& node);

}  // namespace plimsoll
