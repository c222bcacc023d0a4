#include "recipe/load/run_facts.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "recipe/hub.h"
#include "recipe/load/load.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::string data_words(const std::vector<TrainSource>& sources) {
  constexpr size_t kShown = 2;
  std::string words;
  for (size_t i = 0; i < std::min(sources.size(), kShown); ++i) {
    const fs::path path = sources[i].path;
    words += (i == 0 ? "" : ", ") + (path.parent_path().filename() / path.filename()).string();
  }
  if (sources.size() > kShown) words += formatted(" and {} more", sources.size() - kShown);
  return words;
}

}  // namespace

std::optional<RecipeFacts> recipe_facts(const fs::path& file) try {
  const Recipe recipe = load_recipe(file.string()).recipe;
  RecipeFacts facts;
  facts.model = model_name(recipe.model) + (recipe.init == Init::random ? " (random weights)" : "");
  facts.data = data_words(recipe.data.train);
  facts.goal = recipe.save.best;
  for (const Option& option : options()) facts.settings.emplace_back(option.key, to_yaml(option.get(recipe)));
  const bool full = recipe.method.type == MethodType::full;
  facts.method = formatted("{}{}, {}", to_yaml(find_option("method.type")->get(recipe)),
                           full ? "" : ", rank " + std::to_string(recipe.method.r),
                           to_yaml(find_option("precision")->get(recipe)));
  return facts;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace plimsoll
