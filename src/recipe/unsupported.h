// Keys and values that are known and that this version does not support. They are refused by name, never
// ignored. When a capability arrives, its line in unsupported.cc goes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/document/document.h"
#include "recipe/option.h"

namespace plimsoll {

struct Unsupported {
  std::string_view key;
  // Values, items of a list or keys of a map that are known and missing; "x" covers "x:0" as well.
  std::vector<std::string_view> missing;
  // The only values (as to_yaml prints them) that work so far, where not empty.
  std::vector<std::string_view> only;
};

const std::vector<Unsupported>& unsupported();

// "not yet: qlora", "so far only: false", or "" where all of a key works: for the manual.
std::string support_note(std::string_view key);

// The reason why the node may not be given for `key`, before it is read.
std::optional<std::string> refuse_node(std::string_view key, const Node& node);
// The reason why the value may not stand, after it was read.
std::optional<std::string> refuse_value(std::string_view key, const Json& value);

}  // namespace plimsoll
