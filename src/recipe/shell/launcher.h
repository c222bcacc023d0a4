// One command of a script, read as its launcher reads it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recipe/shell/training.h"
#include "recipe/shell/variables.h"

namespace plimsoll {

struct LaunchWord {
  std::string text;
  int line = 0;
};

// Nothing where the command starts no training.
std::optional<ShellTraining> read_launch_command(const std::vector<LaunchWord>& words,
                                                 const ShellVariables& variables);

}  // namespace plimsoll
