// Lower case character by character, without context (a final sigma stays a sigma), as the reference does it.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// Appends the lower case of `text` (valid UTF-8).
void append_lower_case(std::string_view text, std::string& out);

}  // namespace plimsoll
