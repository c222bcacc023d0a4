// The arguments that a training script in Python declares, with their defaults: fields of dataclasses, as transformers'
// HfArgumentParser reads them, and argparse's add_argument. No line of the script is run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/document/document.h"

namespace plimsoll {

struct ScriptArgument {
  std::string name;  // in words with underscores
  Node value;        // its default
  int line = 0;
};

// Only defaults that are written as a value are in the answer: numbers, texts, True, False, and lists of these. An argument
// that is declared twice with different defaults is left out, and so is one without a default.
std::vector<ScriptArgument> read_script_arguments(std::string_view text);

}  // namespace plimsoll
