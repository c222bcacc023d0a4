// Recognises commands by their words: which other runs were the same, and how a command changes when memory
// runs out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace plimsoll::queue {

struct Command {
  std::vector<std::string> words;
  std::vector<std::string> environment;  // NAME=VALUE
};

// Equal for runs that may be taken to need the same: words, environment, folder and devices. A file of
// settings that a word names (YAML, JSON, TOML, INI) counts by its contents, not by its place.
std::string fingerprint(const Command& command, const std::filesystem::path& folder, int devices);

// The name of a command in lists: that of its script or module where its first word is an interpreter or a
// launcher ("python3 train.py" is "train"), else that of the program.
std::string display_name(const std::vector<std::string>& words);

// The command that a run continues as after a device was too small: the user's own words.
struct CommandVariant {
  std::string text;  // as it was given: "batch=4 accum=8 --resume"
  Command command;
  std::string fingerprint;
};

// `command` with NAME=VALUE instead of what NAME has there: NAME=.., --NAME=.. or --NAME .. among the words
// ('-' and '_' are one), else in the environment. What begins with '-' and is not there yet is added. Throws
// UsageError for a NAME that nothing has.
Command changed_command(Command command, const std::string& text, const std::string& option = "--on-oom");
// Returns true if the NAME of "NAME=VALUE" stands there, so that changed_command gives it that value.
bool has_name(Command command, const std::string& text);

}  // namespace plimsoll::queue
