// Chooses the arguments of a training script whose defaults decide what is trained where its command says nothing.
#pragma once

#include <string>
#include <vector>

#include "recipe/document/document.h"
#include "recipe/shell/script_arguments.h"

namespace plimsoll {

// `said` are the trees of what the command and its recipe say. Of the arguments those are in the answer whose keys mean a
// rate, a length, a batch, adapters or the like, and of which no key there says the same.
std::vector<ScriptArgument> script_defaults(const std::vector<const Node*>& said,
                                            std::vector<ScriptArgument> arguments);

// Adds to the script's arguments the values that its arguments decide, as the command says them, else by their defaults; of
// arguments with neither it adds none.
void decide_choices(const Node& keys, ScriptText& script);
// Calls arguments that the script hands on under names of transformers, PEFT and TRL by these names, in the command's keys
// and among its own arguments. In the answer are those that changed, each with its new name in place.
std::vector<ScriptUse> rename_by_use(Node& keys, ScriptText& script);
// The first rate, length or number of steps that the script works out by itself and that nothing says. `key` is ours.
// Line 0: there is no such one.
struct WorkedOut {
  std::string name, key;
  int line = 0;
};
WorkedOut worked_out(const std::vector<const Node*>& said, const ScriptText& script);
// Returns true if a key there says how adapters train, or whether.
bool says_adapters(const std::vector<const Node*>& said, const std::vector<ScriptArgument>& arguments);

}  // namespace plimsoll
