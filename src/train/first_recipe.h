// A first recipe from a model folder and a data file: what `plimsoll init` writes.
#pragma once

#include <filesystem>
#include <string>

namespace plimsoll {

struct FirstRecipe {
  std::filesystem::path model;  // a model folder
  std::filesystem::path data;   // a file or folder that training can read
  std::filesystem::path out;    // the recipe; its folder is where its paths start
  std::string method = "lora";
};

// Looks at config.json, the tokenizer and at most 2,000 rows. The text is YAML with comments, and a recipe
// that plan and train take as it is. Throws UsageError for what neither could use.
std::string first_recipe(const FirstRecipe& wish);

}  // namespace plimsoll
