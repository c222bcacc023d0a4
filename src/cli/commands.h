// The commands of the one binary: each adds itself to the command line and returns the exit code when it was
// chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "recipe/load.h"
#include "train/setup.h"

namespace plimsoll {

// What a command does once the command line is read; empty while it was not chosen.
using Action = std::function<ExitCode()>;

// Options that every command with a recipe takes.
struct RecipeArguments {
  std::string path;  // a recipe file, or a model folder
  std::vector<std::string> sets;
  std::string max_isa;

  void add_to(CLI::App& app, bool folder_allowed);
  // Reports on standard error what PLIMSOLL_SET changed.
  [[nodiscard]] Recipe load() const;
  // The recipe under other assumptions (Overrides::what_if).
  [[nodiscard]] Recipe load(const std::vector<std::string>& what_if) const;
  [[nodiscard]] MachineOptions machine(const Recipe& recipe) const;
};

std::optional<Isa> read_isa(const std::string& text);

void add_plan(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_recipe(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_help(CLI::App& app, Action& action);
void add_debug_dump(CLI::App& app, Action& action);

}  // namespace plimsoll
