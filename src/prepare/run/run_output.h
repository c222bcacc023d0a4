// Checks where a run may write: the recipe's output must be apart from everything that the recipe reads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "files/run_folder.h"
#include "recipe/recipe.h"

namespace plimsoll {

struct OutputWish {
  std::filesystem::path recipe_file;  // as the user named it; may be a model's folder, or empty
  bool resume = false, overwrite = false, profile = false;
};

// Throws UsageError where the output is, lies in or holds the model's or adapter's folder or a folder of
// data, holds a file of data, or the user's recipe. Links are resolved. The recipe that a run saved may be
// used to resume it.
void require_place(const Recipe& recipe, const OutputWish& wish);

// The folder, locked. Throws UsageError where it holds a run that the wish does not resume or replace, and
// where a name that the run would write is taken by what no run wrote.
RunFolder open_output(const Recipe& recipe, const OutputWish& wish);

}  // namespace plimsoll
