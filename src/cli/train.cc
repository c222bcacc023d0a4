#include "train/run.h"

#include "cli/commands.h"

namespace plimsoll {
namespace {

struct TrainArguments {
  RecipeArguments recipe;
  TrainOptions options;
};

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app.add_subcommand("train", "run the plan of a recipe");
  arguments->recipe.add_to(*command, false);
  command->add_flag("--resume", arguments->options.resume, "go on from the run folder's newest checkpoint");
  command->add_flag("--overwrite", arguments->options.overwrite,
                    "replace the run that the output folder holds");
  command->add_flag("--quiet", arguments->options.quiet, "print errors only");
  command->add_flag("--poison", arguments->options.poison, "for tests: NaN where a tensor's life ends");
  command->add_flag("--no-reuse", arguments->options.no_reuse, "for tests: no two tensors share bytes");
  command->callback([arguments, &action] {
    action = [arguments] {
      const Recipe recipe = arguments->recipe.load(arguments->options.quiet).recipe;
      arguments->options.machine = arguments->recipe.machine(recipe);
      return train(recipe, arguments->options);
    };
  });
}

}  // namespace plimsoll
