// The manual in one text for programs that read it, language models above all.
#pragma once

#include <string>

#include "cli/help.h"

namespace plimsoll {

// Markdown in the form of llms.txt: rules, commands with their examples, exit codes, where more is.
std::string llms_text(const HelpCommand& program);

}  // namespace plimsoll
