// The behaviour of a tool where its recipe states nothing. Recipes do not name their tool's version: the
// newest known is assumed, or the one that --as names.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "recipe/aliases.h"

namespace plimsoll {

// "0.9.5" by parts; absent ones are 0.
struct Version {
  std::array<int, 3> parts = {};
  friend auto operator<=>(const Version&, const Version&) = default;
};
std::string to_string(const Version& version);

struct ToolVersion {
  Tool tool = Tool::script;
  Version version;
  bool is_assumed = true;
};

// The versions that the table covers.
struct KnownVersions {
  Tool tool;
  std::string_view word;  // of --as
  Version oldest, newest;
};
const KnownVersions* known_versions(Tool tool);
// Reads "trl-0.20" or "axolotl". Throws UsageError for another tool, and for a version before the table's
// oldest.
ToolVersion parse_tool_version(std::string_view text);

}  // namespace plimsoll
