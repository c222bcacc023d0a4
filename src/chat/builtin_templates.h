// Chat templates by name, for models that bring none. They mark the assistant's words, so that masks are
// exact. Names with a slash are the texts that another tool makes of its rows (tool_templates.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/template_rules.h"

namespace plimsoll {

struct BuiltinTemplate {
  std::string name;
  std::string source;  // "": the model folder's own
  TemplateRules rules = {};
};
const std::vector<BuiltinTemplate>& builtin_templates();
// Null where no template has that name.
const BuiltinTemplate* find_builtin_template(std::string_view name);

// Those of other tools.
std::vector<BuiltinTemplate> tool_templates();

}  // namespace plimsoll
