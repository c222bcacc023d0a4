// The commands of the one binary: each adds itself to the command line and returns the exit code when it was
// chosen.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "prepare/setup.h"
#include "recipe/load/load.h"

namespace plimsoll {

// The function that a command runs once the command line is read; empty while the command was not chosen.
using Action = std::function<ExitCode()>;

// Options that every command with a recipe takes.
struct RecipeArguments {
  std::string path;  // a recipe file, or a model folder
  std::vector<std::string> sets;
  std::map<std::string, std::string> shortcuts;  // value by key, of the keys that have options of their own
  std::string max_isa;
  bool no_probe = false;
  std::string link;     // bytes per second between several devices, of commands that plan
  int64_t nodes = 1;    // machines that share the devices
  int64_t on_node = 0;  // the most devices that one of them has, as `train` finds it; 0: they share evenly
  std::string as_tool;
  bool takes_shapes = false;  // names of the built-in catalogue are models too
  // Shared by copies of these arguments, under whichever assumptions they are read.
  std::shared_ptr<RecipeSources> sources = std::make_shared<RecipeSources>();

  void add_to(CLI::App& app, bool folder_allowed);
  // The recipe with everything known of it; reports nothing.
  [[nodiscard]] LoadedRecipe read() const;
  // Reports on standard error what PLIMSOLL_SET changed, and, unless `quiet`, what became of other tools'
  // keys. Throws UsageError for models and data sets that must be downloaded first.
  [[nodiscard]] LoadedRecipe load(bool quiet = false) const;
  // The recipe under other assumptions (Overrides::what_if).
  [[nodiscard]] LoadedRecipe load_what_if(const std::vector<std::string>& what_if) const;
  [[nodiscard]] MachineOptions machine(const Recipe& recipe) const;
  // Sets a key, whatever its value was before; by its own option where it has one.
  void change(const std::string& key, const std::string& value);
  // Leaves one machine for each device if there are fewer of these than machines.
  void leave_out_idle_nodes(int64_t devices);
  // The same arguments on another device, "cpu" or "cuda"; a GPU that the recipe names is left out.
  [[nodiscard]] RecipeArguments on_device(const std::string& device) const;
  // These arguments as a shell takes them.
  [[nodiscard]] std::string words() const;
};

// Throws UsageError for a file or folder of rows, and for a file of weights, where a recipe is expected: with what makes
// a recipe of it. Other paths pass, and so does JSON, which the second function opens.
void refuse_rows_and_weights(const std::string& argument);
void refuse_rows_in_json(const std::string& argument);

// The report of other tools' keys: comments for a recipe file, notes for a terminal, an object of JSON.
std::string key_report_comments(const KeyReport& report);
std::string key_report_notes(const KeyReport& report, const std::string& recipe);
nlohmann::ordered_json key_report_json(const KeyReport& report);

// Prints the answer to the program's name alone, on a terminal.
ExitCode show_first_screen();

std::optional<Isa> read_isa(const std::string& text);

#define COMMAND(name) void add_##name(CLI::App& app, Action& action);
#include "cli/commands.def"
#undef COMMAND

}  // namespace plimsoll
