// The arguments that a training script in Python declares, with their defaults: fields of dataclasses, as transformers'
// HfArgumentParser reads them, argparse's add_argument, and parameters of a function that Fire starts. No line of the
// script is run.
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

// The place where a script hands an argument on under a name that transformers, PEFT and TRL have: learning_rate=args.lr,
// config.max_length = args.block.
struct ScriptUse {
  std::string argument;
  std::string name;  // of LoraConfig's own as a command has them: lora_r, lora_target_modules
  int line = 0;
};

// A value that one argument decides: load_best_model_at_end=True if val_set_size > 0 else False.
struct ScriptChoice {
  std::string name;
  Node yes, no;
  std::string argument;
  std::string test;  // ">", "==" and the like with `than`; "": whether it is true
  Node than = {};
  bool is_denied = false;  // not ...
  int line = 0;
};

struct ScriptText {
  std::vector<ScriptArgument> arguments;
  std::vector<ScriptChoice> choices;
  std::vector<ScriptUse> uses;  // `argument` is "" where a value is worked out
  int answers = 0;   // the line that leaves the answers within texts as targets alone; 0: no line does
  int adapters = 0;  // the line that makes LoRA's configuration; 0: no line does
  bool always_adapts = false;  // whatever its arguments say
};

// Only defaults that are written as a value are in the answer: numbers, texts, True, False, and lists of these; so are
// values that the script gives to TrainingArguments and the like. An argument that is declared twice with different
// defaults is left out, and so is one without a default.
ScriptText read_script(std::string_view text);

}  // namespace plimsoll
