// The training that a shell script starts: by torchrun, accelerate, deepspeed, a tool's own command or
// Python.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "recipe/document/document.h"

namespace plimsoll {

// The key under which the keys of a command hold what it starts: "train.py", "llamafactory-cli train".
inline constexpr std::string_view kProgramKey = "(program)";
// The key under which they hold, in words, those that the script declares by default, and its command does not say.
inline constexpr std::string_view kDefaultsKey = "(defaults)";
// The programs of ms-swift's commands: "swift sft", "swift pt", "swift rlhf".
inline bool is_swift(std::string_view program) { return program.starts_with("swift "); }
// The key under which they hold what else the script's own text says: names it hands arguments on by, values that it
// works out, adapters.
inline constexpr std::string_view kScriptFactsKey = "(script)";

struct ShellTraining {
  Node keys;            // the command's keys, and how many processes it starts
  std::string program;  // as under kProgramKey
  std::string script;   // the file of a program in Python, as the command names it; "" for others
  std::string config;   // the recipe that the command names; "" where it names none
  std::string folder;   // where the script has gone to by then, from its own folder: "src"
  int line = 0;         // where the command begins
};

// Returns true if a file is a shell script, by its name or its first line.
bool is_shell_script(std::string_view text, std::string_view name);

// Throws DocumentError where a script starts no training, or more than one of which no line is named. With a line the
// training that begins there. Files that the script sources are looked for in its folder and in those above.
ShellTraining read_shell_training(std::string_view text, std::optional<int> line = {},
                                  const std::filesystem::path& folder = {});

}  // namespace plimsoll
