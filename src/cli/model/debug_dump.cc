#include "cli/commands.h"
#include "cli/usage_text.h"
#include "tools/inspect.h"

namespace plimsoll {
namespace {

struct DumpArguments {
  RecipeArguments recipe;
  InspectOptions options;
};

}  // namespace

// Hidden: a tool of the tests (tests/parity).
void add_debug_dump(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<DumpArguments>();
  CLI::App* command =
      app.add_subcommand("debug-dump", "loss, gradients and logits of one batch, without an update")
          ->group("");
  arguments->recipe.add_to(*command, false);
  command->add_option("--ids", arguments->options.batch, "JSON file of the batch")->required();
  command->add_option("--out", arguments->options.out, "safetensors file to write")->required();
  command
      ->add_option("--max-new-tokens", arguments->options.max_new_tokens,
                   "greedy answers to the file's prompts, of so many tokens")
      ->check(at_least(0));
  command->callback([arguments, &action] {
    action = [arguments] {
      const Recipe recipe = arguments->recipe.load().recipe;
      arguments->options.machine = arguments->recipe.machine(recipe);
      write_inspection(resolve(recipe, arguments->recipe.sources->models), arguments->options);
      return ExitCode::ok;
    };
  });
}

}  // namespace plimsoll
