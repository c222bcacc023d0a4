// Writes a first recipe from a model folder and a data file, for `plimsoll init`.
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

struct WrittenRecipe {
  std::string text;
  std::vector<std::string> rendering;  // how rows become text (prepare/rendering_words.h)
  bool needs_weights = false;          // plan works already, train once the model's folder has its weights
};

// Looks at config.json, the tokenizer and at most 2,000 rows. The text is YAML with comments, and a recipe
// that plan and train take as it is. Throws UsageError for what neither could use.
WrittenRecipe first_recipe(const FirstRecipe& wish);

}  // namespace plimsoll
