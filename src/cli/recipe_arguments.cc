#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/commands.h"

namespace plimsoll {

void RecipeArguments::add_to(CLI::App& app, bool folder_allowed) {
  app.add_option("recipe", path,
                 folder_allowed ? "recipe (YAML or JSON), or a model folder" : "recipe (YAML or JSON)")
      ->required();
  app.add_option("--set", sets, "key=value: changes one key of the recipe (may be repeated)")
      ->type_name("KEY=VALUE");
  app.add_option("--max-isa", max_isa, "use no instructions beyond avx2, avx512, avx512-bf16 or amx");
}

Recipe RecipeArguments::load() const {
  Overrides overrides;
  overrides.sets = sets;
  if (const char* environment = std::getenv("PLIMSOLL_SET")) overrides.environment = environment;
  LoadedRecipe loaded;
  if (std::filesystem::is_directory(path)) {
    overrides.sets.insert(overrides.sets.begin(), assignment("model", path));
    loaded = recipe_from_overrides(overrides);
  } else {
    loaded = load_recipe(path, overrides);
  }
  for (const std::string& change : loaded.environment_changes)
    std::fprintf(stderr, "note    PLIMSOLL_SET: %s\n", change.c_str());
  return loaded.recipe;
}

std::optional<Isa> read_isa(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_isa(text, "--max-isa");
}

MachineOptions RecipeArguments::machine(const Recipe& recipe) const {
  return {read_isa(max_isa), recipe.threads};
}

}  // namespace plimsoll
