// plimsoll preview: rows as the model sees them, before a run.
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "cli/commands.h"
#include "cli/plan/preview_text.h"
#include "cli/usage_text.h"
#include "files/atomic.h"
#include "prepare/preview.h"

namespace plimsoll {
namespace {

struct PreviewArguments {
  RecipeArguments recipe;
  int64_t rows = 3;
  std::string html;
  bool json = false;
};

ExitCode run(const PreviewArguments& arguments) {
  const LoadedRecipe loaded = arguments.recipe.load(arguments.json);
  const Preview preview = preview_rows(loaded.recipe, arguments.recipe.sources->models, arguments.rows);
  if (!arguments.html.empty())
    write_file_atomically(arguments.html, preview_page(preview, "rows of " + arguments.recipe.path));
  if (arguments.json) {
    print(json_text(preview_json(preview)));
    return ExitCode::ok;
  }
  print_styled(preview_text(preview, output_columns()));
  if (!arguments.html.empty()) print(formatted("\npage     {}\n", printable(arguments.html)));
  return ExitCode::ok;
}

}  // namespace

void add_preview(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PreviewArguments>();
  CLI::App* command =
      app.add_subcommand("preview", "rows as the model sees them, with trained tokens marked");
  arguments->recipe.add_to(*command, false);
  command->add_option("--rows", arguments->rows, "number of rows")
      ->check(between(1, 1000))
      ->capture_default_str();
  command->add_option("--html", arguments->html, "write them as an HTML page")->type_name("FILE");
  command->add_flag("--json", arguments->json, "JSON output (docs/reference/json.md)");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
