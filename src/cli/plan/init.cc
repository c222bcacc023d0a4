#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "files/atomic.h"
#include "prepare/first_recipe.h"
#include "recipe/load/load.h"

namespace plimsoll {
namespace {

struct InitArguments {
  FirstRecipe wish;
  bool force = false;
};

ExitCode run(const InitArguments& arguments) {
  const std::filesystem::path& out = arguments.wish.out;
  if (std::filesystem::exists(out) && !arguments.force)
    throw UsageError(out.string() + ": exists; --force replaces it, --out FILE writes another one");
  const auto [text, rows, needs_weights] = first_recipe(arguments.wish);
  std::error_code failed;
  if (out.has_parent_path()) std::filesystem::create_directories(out.parent_path(), failed);
  if (failed)
    throw UsageError(formatted("{}: cannot be made: {}", out.parent_path().string(), failed.message()));
  if (arguments.force)
    write_file_atomically(out, text);
  else
    write_new_file(out, text);
  const std::string word = printable(quoted(out.string()));
  std::string told;
  for (const std::string& line : rows) told += "\nrows    " + printable(line);
  const std::string lines = formatted(
      "wrote   {}{}\nnext    plimsoll plan {}\n        plimsoll train {}\n{}", printable(out.string()), told,
      word, word, needs_weights ? "        train needs model.safetensors in the model's folder\n" : "");
  print(fitted_to_terminal(lines, STDOUT_FILENO));
  return ExitCode::ok;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<InitArguments>();
  arguments->wish.out = "recipe.yaml";
  CLI::App* command =
      app.add_subcommand("init", "write a commented recipe from a model folder and a data file");
  command
      ->add_option("model", arguments->wish.model, "model folder, or a model's name on the Hugging Face hub")
      ->required();
  command->add_option("data", arguments->wish.data, "file or folder of rows to train on")->required();
  command->add_option("--out", arguments->wish.out, "the recipe to write")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--method", arguments->wish.method, "full, lora or qlora")
      ->check(CLI::IsMember({"full", "lora", "qlora"}))
      ->capture_default_str();
  command
      ->add_option("--set", arguments->wish.sets,
                   "key=value of the recipe, such as data.columns={prompt: ticket, response: label} (may be "
                   "repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  for (const auto& [option, key] :
       {std::pair{"--lr", "optimizer.lr"}, std::pair{"--epochs", "schedule.epochs"},
        std::pair{"--output", "output"}}) {
    const auto take = [arguments, key = std::string(key)](const std::string& value) {
      arguments->wish.sets.push_back(key == "output" ? assignment(key, value)
                                                     : formatted("{}={}", key, value));
    };
    command->add_option_function<std::string>(option, take, "recipe: " + std::string(key));
  }
  command->add_flag("--force", arguments->force, "overwrite an existing file");
  command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace plimsoll
