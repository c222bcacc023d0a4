// A first recipe from a model folder and a data file: what `plimsoll init` writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace plimsoll {

struct FirstRecipe {
  std::filesystem::path model;  // a model folder, or a name of the hub
  std::filesystem::path data;   // a file or folder that training can read
  std::filesystem::path out;    // the recipe; its folder is where its paths start
  std::string method = "lora";
  std::vector<std::string> sets;  // "data.columns={prompt: ticket}": keys of the recipe, as --set says them
};

// Looks at config.json, the tokenizer and at most 2,000 rows. The text is YAML with comments, and a recipe
// that plan and train take as it is. Throws UsageError for what neither could use.
std::string first_recipe(const FirstRecipe& wish);

}  // namespace plimsoll
