#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "recipe/aliases.h"
#include "recipe/effective.h"
#include "recipe/explain.h"

namespace plimsoll {
namespace {

struct RecipeCommandArguments {
  RecipeArguments recipe;
  bool explain = false, aliases = false;
  bool json = false;
};

ExitCode run(const RecipeCommandArguments& arguments) {
  if (arguments.explain) {
    const std::string text = arguments.json ? explain_recipe_json().dump(2) + "\n" : explain_recipe();
    std::fputs(text.c_str(), stdout);
    return ExitCode::ok;
  }
  if (arguments.aliases) {
    std::fputs(aliases_markdown().c_str(), stdout);
    return ExitCode::ok;
  }
  if (arguments.recipe.path.empty()) throw UsageError("recipe: name a recipe, or use --explain");
  const LoadedRecipe loaded = arguments.recipe.read();
  for (const std::string& name : loaded.missing) std::fprintf(stderr, "note    %s\n", name.c_str());
  if (arguments.json) {
    const nlohmann::ordered_json answer = {{"recipe", effective_json(loaded.recipe)},
                                           {"other_tools", key_report_json(loaded.other_tools)}};
    std::fputs((answer.dump(2) + "\n").c_str(), stdout);
    return ExitCode::ok;
  }
  std::fputs((key_report_comments(loaded.other_tools) + effective_yaml(loaded.recipe)).c_str(), stdout);
  return ExitCode::ok;
}

}  // namespace

void add_recipe(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<RecipeCommandArguments>();
  CLI::App* command =
      app.add_subcommand("recipe", "a recipe with every default filled in, or what its keys mean");
  arguments->recipe.add_to(*command, true);
  command->get_option("recipe")->required(false);
  command->add_flag("--explain", arguments->explain, "every key with its default and meaning");
  command->add_flag("--aliases", arguments->aliases, "the keys of other tools that are known, as a table");
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
