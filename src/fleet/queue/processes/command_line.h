// This process's command line, as ps and pkill -f see it.
#pragma once

#include <string>

namespace plimsoll {

// Shows `text` in its place, as much as there is room for. The words of the old one must not be used any
// more.
void show_command_as(const std::string& text);

}  // namespace plimsoll
