// Makers of options, one for each type of value. `field` is a generic lambda that returns a reference to the
// member: [](auto& r) -> auto& { return r.method.r; }.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "recipe/option.h"
#include "recipe/values.h"

// A member of Recipe, for reading and for writing.
#define FIELD(member) \
  [](auto& recipe) -> auto& { return recipe.member; }

namespace plimsoll::option_types {

using Folder = const std::filesystem::path&;

// `read(node, folder)` returns an optional of the field's type, `write(value)` its printed form.
template <class Field, class Read, class Write>
Option make(std::string key, Field field, std::string values, std::string meaning, Read read, Write write) {
  Option option;
  option.key = std::move(key);
  option.values = std::move(values);
  option.meaning = std::move(meaning);
  option.set = [field, read](Recipe& recipe, const Node& node, Folder folder) {
    auto value = read(node, folder);
    if (!value) return false;
    field(recipe) = *std::move(value);
    return true;
  };
  option.get = [field, write](const Recipe& recipe) -> Json { return write(field(recipe)); };
  return option;
}

template <class Field>
Option integer(std::string key, Field field, IntegerRange range, std::string meaning) {
  return make(
      std::move(key), field, describe(range), std::move(meaning),
      [range](const Node& node, Folder) { return read_integer(node, range); },
      [](int64_t value) { return Json(value); });
}

template <class Field>
Option auto_integer(std::string key, Field field, IntegerRange range, std::string meaning) {
  return make(
      std::move(key), field, "auto or " + describe(range), std::move(meaning),
      [range](const Node& node, Folder) {
        return node.is_word("auto") ? std::optional<int64_t>(kAuto) : read_integer(node, range);
      },
      print_auto);
}

template <class Field>
Option number(std::string key, Field field, NumberRange range, std::string meaning) {
  return make(
      std::move(key), field, describe(range), std::move(meaning),
      [range](const Node& node, Folder) { return read_number(node, range); },
      [](double value) { return Json(value); });
}

template <class Field>
Option boolean(std::string key, Field field, std::string meaning) {
  return make(
      std::move(key), field, "true or false", std::move(meaning),
      [](const Node& node, Folder) { return read_boolean(node); }, [](bool value) { return Json(value); });
}

template <class Enum>
using Words = std::vector<std::pair<std::string, Enum>>;

template <class Enum>
std::string list_of(const Words<Enum>& words) {
  std::string text;
  for (const auto& [word, value] : words) text += (text.empty() ? "" : " | ") + word;
  return text;
}

template <class Enum>
std::optional<Enum> read_word(const Node& node, const Words<Enum>& words) {
  for (const auto& [word, value] : words)
    if (node.is_word(word)) return value;
  return std::nullopt;
}

template <class Enum>
std::string print_word(Enum value, const Words<Enum>& words) {
  const auto has_value = [value](const auto& word) { return word.second == value; };
  return std::find_if(words.begin(), words.end(), has_value)->first;  // every enumerator has its word
}

template <class Enum, class Field>
Option choice(std::string key, Field field, Words<Enum> words, std::string meaning) {
  return make(
      std::move(key), field, list_of(words), std::move(meaning),
      [words](const Node& node, Folder) { return read_word(node, words); },
      [words](Enum value) { return Json(print_word(value, words)); });
}

// A word of a list, or null.
template <class Field>
Option optional_word(std::string key, Field field, std::vector<std::string> words, std::string meaning) {
  std::string values = "null";
  for (const std::string& word : words) values += " | " + word;
  Option option;
  option.key = std::move(key);
  option.values = std::move(values);
  option.meaning = std::move(meaning);
  option.set = [field, words](Recipe& recipe, const Node& node, Folder) {
    const bool known = std::find(words.begin(), words.end(), node.text) != words.end();
    if (node.kind != Node::Kind::null && (node.kind != Node::Kind::scalar || !known)) return false;
    field(recipe) = known ? std::optional(node.text) : std::nullopt;
    return true;
  };
  option.get = [field](const Recipe& recipe) { return print(field(recipe)); };
  return option;
}

template <class Field>
Option optional_path(std::string key, Field field, std::string meaning) {
  Option option;
  option.key = std::move(key);
  option.values = "a path or null";
  option.meaning = std::move(meaning);
  option.set = [field](Recipe& recipe, const Node& node, Folder folder) {
    field(recipe) = read_path(node, folder);
    return field(recipe).has_value() || node.kind == Node::Kind::null;
  };
  option.get = [field](const Recipe& recipe) { return print(field(recipe)); };
  return option;
}

Option stop_loss();
Option stop_above();
Option method_rank_pattern();
Option method_alpha_pattern();
Option method_layers();
Option method_layers_pattern();
Option method_modules_to_save();
Option method_bits();
Option method_unquantised();
Option method_freeze();
Option method_init();

}  // namespace plimsoll::option_types

namespace plimsoll {

// data_options.cc
Option data_train();
Option data_columns();
Option data_max_length();
Option data_truncation();
Option data_train_on_prompt();
Option data_special_tokens();
Option data_template_source();
Option data_packing();
Option save_hub();
Option data_on_error();

// memory_options.cc
std::vector<Option> memory_options();

// template_options.cc
Option data_template();
Option data_date();

}  // namespace plimsoll
