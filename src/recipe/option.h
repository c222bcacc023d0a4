// The table of options: every key of a recipe is declared once, in options.cc, with the functions that read
// and print it and its explanation.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/document/document.h"
#include "recipe/recipe.h"

namespace plimsoll {

using Json = nlohmann::ordered_json;

struct Option {
  std::string key;      // "method.r"
  std::string values;   // what is allowed, as in "expected ...": "a whole number from 1 to 8192"
  std::string meaning;  // one line
  // Reads the node into the recipe; false when it is not one of `values`; UsageError where a better message
  // is possible. Relative paths start from `folder`.
  std::function<bool(Recipe&, const Node&, const std::filesystem::path& folder)> set;
  // The value as the recipe file writes it; its defaults are those of Recipe.
  std::function<Json(const Recipe&)> get;

  bool required = false;  // a recipe without it means nothing
  // The first of full, lora, qlora for which the key has a meaning; with those before it the key is an error.
  MethodType method = MethodType::full;
  bool four_bits = false;         // means something to a base in 4 bits alone
  std::optional<Task> task = {};  // the only one that the key means something to
  // With optimizers that do not use it the key is an error; nullptr: all use the key.
  bool OptimizerTraits::*optimizer_uses = nullptr;
  bool is_part = false;     // shown inside another key's value (precision.weights)
  bool told_if_on = false;  // such a part, left out where it is off: recipes from before it read the same
  bool experiment = false;  // decides the run's result: a checkpoint belongs to one value of it
};

// All options, in the order of docs/reference/recipe.md.
const std::vector<Option>& options();
// nullptr where no option has the key.
const Option* find_option(std::string_view key);
// Returns true if some option's key starts with `name` and a dot.
bool is_group(std::string_view name);
// The key that was probably meant, or "".
std::string suggest_key(std::string_view unknown);

// Returns true if the option has a meaning in this recipe: LoRA's have none with `method.type: full`,
// momentum none with AdamW.
bool applies(const Option& option, const Recipe& recipe);
bool applies_to_optimizer(const Option& option, const Recipe& recipe);
bool applies_to_task(const Option& option, const Recipe& recipe);

// The words of data.template.
const std::vector<std::string>& template_names();

// A value in YAML's flow style: 2e-4, [q_proj, v_proj], {prompt: question}.
std::string to_yaml(const Json& value);

}  // namespace plimsoll
