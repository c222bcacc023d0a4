#include "recipe/option.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "recipe/aliases.h"

namespace plimsoll {
namespace {

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// 2e-4 and 1e6 rather than 2e-04 and 1e+06.
std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const char* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(static_cast<const char*>(buffer.data()), end);
  if (const size_t at = text.find("e-0"); at != std::string::npos) text.erase(at + 2, 1);
  if (const size_t at = text.find("e+"); at != std::string::npos)
    text.erase(at + 1, text[at + 2] == '0' ? 2 : 1);
  return text;
}

// Returns true if YAML reads the bare text as the same text.
bool is_plain(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '%' || c == '/' || c == '-';
  };
  const bool is_null = text == "null" || text == "Null" || text == "NULL";
  return !text.empty() && !is_null && text.front() != '%' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), plain);
}

// Escapes of JSON are escapes of YAML too, between quotes: also those of what would steer a terminal.
std::string string_to_yaml(const std::string& text) {
  return is_plain(text) && printable(text) == text ? text : printable(Json(text).dump());
}

}  // namespace

const Option* find_option(std::string_view key) {
  const auto at =
      std::find_if(options().begin(), options().end(), [&](const Option& o) { return o.key == key; });
  return at == options().end() ? nullptr : &*at;
}

bool is_group(std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  return std::any_of(options().begin(), options().end(),
                     [&](const Option& option) { return option.key.starts_with(prefix); });
}

std::string suggest_key(std::string_view unknown) {
  constexpr size_t kLongestKey = 40;  // keeps the search cheap whatever a file holds
  if (unknown.size() > kLongestKey) return "";
  std::vector<std::string> names;
  for (const Option& option : options()) {
    names.push_back(option.key);
    const std::string group = option.key.substr(0, option.key.find('.'));
    if (names.end() == std::find(names.begin(), names.end(), group)) names.push_back(group);
  }
  // A key in the wrong place: 'lr' for 'optimizer.lr'. Short names lie within a typing error of too many
  // others, so the exact one wins over the nearest.
  for (const Option& option : options())
    if (last_part(option.key) == last_part(unknown)) return option.key;
  // Other tools' keys come last: of equally near names the own one is meant.
  names.insert(names.end(), alias_keys().begin(), alias_keys().end());
  return nearest_name(unknown, names);
}

bool applies_to_optimizer(const Option& option, const Recipe& recipe) {
  return option.optimizer_uses == nullptr || traits_of(recipe.optimizer.name).*option.optimizer_uses;
}

bool applies_to_task(const Option& option, const Recipe& recipe) {
  return !option.task || option.task == recipe.task;
}

bool applies(const Option& option, const Recipe& recipe) {
  return applies_to_optimizer(option, recipe) && applies_to_task(option, recipe) &&
         recipe.method.type >= option.method && (!option.four_bits || recipe.method.bits == 4);
}

std::string to_yaml(const Json& value) {
  if (value.is_string()) return string_to_yaml(value.get<std::string>());
  if (value.is_number_float()) return shortest(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& [key, item] : value.items())
    parts.push_back(value.is_object() ? formatted("{}: {}", string_to_yaml(key), to_yaml(item))
                                      : to_yaml(item));
  const std::string inner = join(parts, ", ");
  return value.is_object() ? formatted("{{{}}}", inner) : formatted("[{}]", inner);
}

}  // namespace plimsoll
