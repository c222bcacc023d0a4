// Tests in a shell script, as far as the script alone determines them.
#pragma once

#include <optional>

#include "recipe/shell/variables.h"
#include "recipe/shell/words.h"

namespace plimsoll {

// The result of [ ... ], [[ ... ]], test, true and false; nothing for other commands and for what only the machine knows.
std::optional<bool> read_condition(const ShellCommand& command, const ShellVariables& variables);

}  // namespace plimsoll
