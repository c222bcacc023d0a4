#include "recipe/explain.h"

#include "base/format.h"
#include "base/strings.h"
#include "recipe/option.h"
#include "recipe/unsupported.h"

namespace plimsoll {
namespace {

std::string printed_default(const Option& option) {
  return option.required ? "(required)" : to_yaml(option.get(Recipe{}));
}

std::string description(const Option& option) {
  const std::string note = support_note(option.key);
  std::string text = formatted("{} ({})", option.meaning, option.values);
  if (!note.empty()) text += "; " + note;
  return text;
}

}  // namespace

std::string explain_recipe(size_t columns) {
  TextTable table;
  std::string group;
  for (const Option& option : options()) {
    const size_t dot = option.key.find('.');
    const std::string own =
        dot == std::string::npos && !is_group(option.key) ? "" : option.key.substr(0, dot);
    if (own != group) table.add_row({});
    group = own;
    table.add_row({option.key, printed_default(option), description(option)});
  }
  return table.render("", columns);
}

nlohmann::ordered_json explain_recipe_json() {
  Json list = Json::array();
  for (const Option& option : options())
    list.push_back({{"key", option.key},
                    {"default", option.get(Recipe{})},
                    {"values", option.values},
                    {"meaning", option.meaning},
                    {"required", option.required},
                    {"support", support_note(option.key)}});
  return list;
}

}  // namespace plimsoll
