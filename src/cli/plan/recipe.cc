#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/print.h"
#include "base/screen.h"
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
    const std::string text = arguments.json ? json_text(explain_recipe_json())
                                            : explain_recipe(std::min<size_t>(output_columns(), 100));
    print(text);
    return ExitCode::ok;
  }
  if (arguments.aliases) {
    print(aliases_markdown());
    return ExitCode::ok;
  }
  if (arguments.recipe.path.empty()) throw UsageError("recipe: name a recipe, or use --explain");
  const LoadedRecipe loaded = arguments.recipe.read();
  for (const std::string& name : loaded.missing) say("note    " + name);
  if (arguments.json) {
    const nlohmann::ordered_json answer = {{"recipe", effective_json(loaded.recipe)},
                                           {"other_tools", key_report_json(loaded.other_tools)}};
    print(json_text(answer));
    return ExitCode::ok;
  }
  print(key_report_comments(loaded.other_tools) + effective_yaml(loaded.recipe));
  return ExitCode::ok;
}

}  // namespace

void add_recipe(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<RecipeCommandArguments>();
  CLI::App* command = app.add_subcommand("recipe", "a recipe with all defaults, or the meaning of its keys");
  arguments->recipe.add_to(*command, true);
  command->get_option("recipe")->required(false);
  command->add_flag("--explain", arguments->explain, "all keys with their defaults and meanings");
  command->add_flag("--aliases", arguments->aliases, "a table of the known keys of other tools");
  command->add_flag("--json", arguments->json, "as JSON");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
