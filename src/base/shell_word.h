// Quotes words of commands that people paste into a shell.
#pragma once

#include <string>

namespace plimsoll {

// A word as a shell takes it.
std::string quoted(const std::string& word);

}  // namespace plimsoll
