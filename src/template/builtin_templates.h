// Chat templates by name, for models that bring none. They mark the assistant's words, so that masks are
// exact.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace plimsoll {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};
std::span<const BuiltinTemplate> builtin_templates();
// Null where there is none of that name.
const BuiltinTemplate* find_builtin_template(std::string_view name);

}  // namespace plimsoll
