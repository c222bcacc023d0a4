// ms-swift's commands: `swift sft`, `swift pt` and `swift rlhf`, read as those of a training script with transformers'
// arguments.
#pragma once

#include "recipe/document/document.h"
#include "recipe/shell/training.h"

namespace plimsoll {

// Takes a command's keys by the names that the others have, and adds what swift takes where the command says nothing
// (under kDefaultsKey, with a text for the report).
void read_swift(Node& keys, const ShellTraining& training);

}  // namespace plimsoll
