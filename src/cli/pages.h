// The text of a command's --help page in addition to its options.
#pragma once

#include <string_view>
#include <vector>

namespace plimsoll {

struct CommandExample {
  std::string_view line;
  std::string_view meaning;
};

struct CommandPage {
  std::string_view name;         // "" for the program itself
  std::string_view description;  // paragraphs with an empty line between them
  std::vector<CommandExample> examples;
  std::vector<int> exits;     // exit codes that it ends with, in addition to 0, 1 and 2
  std::string_view document;  // "docs/howto/train.md"
};

// Null for a command without one; a test lists those.
const CommandPage* find_page(std::string_view name);

// The meaning of an exit code.
std::string_view exit_meaning(int code);

}  // namespace plimsoll
