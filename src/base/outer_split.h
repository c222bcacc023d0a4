// Splits lists that people write on one line and whose parts may be one-line YAML themselves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// The parts between any of `separators` that stand outside of quotes, [] and {}; empty parts too.
std::vector<std::string> outer_split(std::string_view text, std::string_view separators);

}  // namespace plimsoll
