// Makes line breaks within a message visible.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// A message of several lines begins each of them but the first with two blanks; other line breaks are part of
// a foreign name, and become visible: \n.
std::string visible_breaks(std::string_view message);

}  // namespace plimsoll
