// A shell script as commands of words, before anything is expanded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

enum class Quote : unsigned char { none, doubled, single };

struct ShellPiece {
  std::string text;  // in single quotes: as it is; else with $NAME, ${...}, $(...) in it
  Quote quote = Quote::none;
};

struct ShellWord {
  std::vector<ShellPiece> pieces;
  std::vector<ShellWord> items;  // of an array: NAME=(a b)
  int line = 0;
};

// A command follows the one before always, or behind && or ||.
enum class ShellLink : unsigned char { always, if_true, if_false };

struct ShellCommand {
  std::vector<ShellWord> words;
  ShellLink link = ShellLink::always;
  bool defines = false;  // NAME(): a function, whose body follows
};

// Comments, redirections and texts behind << are left out.
std::vector<ShellCommand> read_shell_commands(std::string_view text);

// The word as it is written, for comparisons with names of commands.
std::string plain_text(const ShellWord& word);

}  // namespace plimsoll
