// Chooses the arguments of a training script whose defaults decide what is trained where its command says nothing.
#pragma once

#include <vector>

#include "recipe/shell/script_arguments.h"

namespace plimsoll {

// `said` are the trees of what the command and its recipe say. Of the arguments those are in the answer whose keys mean a
// rate, a length, a batch, adapters or the like, and of which no key there says the same.
std::vector<ScriptArgument> script_defaults(const std::vector<const Node*>& said,
                                            std::vector<ScriptArgument> arguments);

}  // namespace plimsoll
