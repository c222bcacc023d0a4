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

namespace {

LoadedRecipe load_with(const RecipeArguments& arguments, const std::vector<std::string>& what_if) {
  Overrides overrides;
  overrides.sets = arguments.sets;
  overrides.what_if = what_if;
  if (const char* environment = std::getenv("PLIMSOLL_SET")) overrides.environment = environment;
  if (!std::filesystem::is_directory(arguments.path)) return load_recipe(arguments.path, overrides);
  overrides.sets.insert(overrides.sets.begin(), assignment("model", arguments.path));
  return recipe_from_overrides(overrides);
}

}  // namespace

Recipe RecipeArguments::load() const {
  const LoadedRecipe loaded = load_with(*this, {});
  for (const std::string& change : loaded.environment_changes)
    std::fprintf(stderr, "note    PLIMSOLL_SET: %s\n", change.c_str());
  return loaded.recipe;
}

Recipe RecipeArguments::load(const std::vector<std::string>& what_if) const {
  return load_with(*this, what_if).recipe;
}

std::optional<Isa> read_isa(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_isa(text, "--max-isa");
}

MachineOptions RecipeArguments::machine(const Recipe& recipe) const {
  return {read_isa(max_isa), recipe.threads};
}

}  // namespace plimsoll
