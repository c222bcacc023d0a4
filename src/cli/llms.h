// The manual in one text for programs that read it, language models above all.
#pragma once

#include <string>

#include "cli/help.h"

namespace plimsoll {

// Markdown in the form of llms.txt: rules, commands with their examples, exit codes, where more is.
std::string llms_text(const HelpCommand& program);

// The same in short, as a skill file (SKILL.md) for language models that run commands: when to use the program, the
// commands of a run from the first to the last, how to read its ends.
std::string skill_text();

}  // namespace plimsoll
