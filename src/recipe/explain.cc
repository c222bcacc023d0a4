#include "recipe/explain.h"

#include "base/strings.h"
#include "recipe/option.h"
#include "recipe/unsupported.h"

namespace plimsoll {
namespace {

constexpr size_t kColumns = 100;

// Words of `text` in lines of at most `width`.
std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& word : split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string printed_default(const Option& option) {
  return option.required ? "(required)" : to_yaml(option.get(Recipe{}));
}

std::string description(const Option& option) {
  const std::string note = support_note(option.key);
  std::string text = option.meaning + " (" + option.values + ")";
  if (!note.empty()) text += "; " + note;
  return text;
}

}  // namespace

std::string explain_recipe() {
  size_t key_width = 0;
  size_t default_width = 0;
  for (const Option& option : options()) {
    key_width = std::max(key_width, option.key.size());
    default_width = std::max(default_width, printed_default(option).size());
  }
  TextTable table;
  std::string group;
  for (const Option& option : options()) {
    const size_t dot = option.key.find('.');
    const std::string own =
        dot == std::string::npos && !is_group(option.key) ? "" : option.key.substr(0, dot);
    if (own != group) table.add_row({});
    group = own;
    std::string key = option.key;
    std::string value = printed_default(option);
    for (const std::string& line : wrap(description(option), kColumns - key_width - default_width - 4)) {
      table.add_row({key, value, line});
      key.clear();
      value.clear();
    }
  }
  return table.render();
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
