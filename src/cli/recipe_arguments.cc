#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
#include "base/print.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cpu/threads.h"
#include "data/files/data_files.h"
#include "files/json.h"
#include "models/family.h"
#include "recipe/hub.h"
#include "recipe/known_model.h"
#include "recipe/translate/read_file.h"

namespace plimsoll {
namespace {

// Keys of the recipe under shorter names.
struct Shortcut {
  const char* option;
  const char* key;
  const char* meaning;
  const char* values = "TEXT";  // as CLI11 names a type: what completion offers and help names
};
constexpr std::array kShortcuts = {
    Shortcut{"--memory", "memory.device",
             "memory budget: a size, a share, or auto; on a CPU, of the whole process"},
    Shortcut{"--host-memory", "memory.host",
             "memory.host: host memory budget of a run on a GPU: a size, a share, or auto"},
    Shortcut{"--gpu", "memory.gpu",
             "memory.gpu: plan for a GPU by name, such as \"RTX 3060 12GB\"; train uses it if it is in this "
             "machine"},
    Shortcut{"--disk", "memory.disk", "memory.disk: disk space for offloading, a size"},
    Shortcut{
        "--device", "device",
        "device: auto (a GPU of this machine, else the CPU), cpu, cuda (cuda:1: the second GPU), or card: a "
        "GPU of another machine, to plan for"},
    Shortcut{"--method", "method.type", "method.type", "TEXT:{full,lora,qlora}"},
    Shortcut{"--rank", "method.r", "method.r: rank of the adapters"},
    Shortcut{"--length", "data.max_length", "data.max_length in tokens"},
    Shortcut{"--batch", "batch.effective",
             "batch.effective: effective batch size, sequences per optimizer step"},
    Shortcut{"--micro-batch", "batch.micro", "batch.micro: micro-batch size, or auto"},
    Shortcut{"--lr", "optimizer.lr", "optimizer.lr: peak learning rate"},
    Shortcut{"--epochs", "schedule.epochs", "schedule.epochs: passes over the training data"},
    Shortcut{"--output", "output", "output: run folder"},
    Shortcut{"--precision", "precision", "precision", "TEXT:{fp32,bf16,bf16-master,bf16-pure,fp16}"},
    Shortcut{"--optimizer", "optimizer.name", "optimizer.name", "TEXT:{adamw,adamw8bit,lion,sgd,adafactor}"},
    Shortcut{"--devices", "devices",
             "devices: number of devices that share each effective batch (data parallel), a process each"},
    Shortcut{"--threads", "threads", "CPU threads, or auto"},
};

// As from a variable that is not set: "--gpu $CARD" would be ignored.
const CLI::Validator not_empty(
    [](const std::string& text) {
      return text.find_first_not_of(" \t") == std::string::npos ? std::string("is empty") : std::string();
    },
    "");

}  // namespace

void RecipeArguments::add_to(CLI::App& app, bool folder_allowed) {
  app.add_option(
         "recipe", path,
         folder_allowed
             ? "recipe (YAML or JSON; -: standard input), a model folder or its config.json, or a model's name on the Hugging Face hub"
             : "recipe (YAML or JSON; -: standard input), or a model folder with --set data.train=FILE")
      ->required();
  app.add_option("--set", sets,
                 "key=value: set a key of the recipe; key=null restores its default (may be repeated)")
      ->type_name("KEY=VALUE");
  for (const Shortcut& shortcut : kShortcuts)
    app.add_option(shortcut.option, shortcuts[shortcut.key], shortcut.meaning)
        ->check(not_empty)
        ->type_name(shortcut.values);
  app.add_flag("--no-probe", no_probe,
               "do not measure this machine where its speed is unknown; times are then guessed");
  app.add_option(
         "--as", as_tool,
         "tool and version that the recipe was written for, such as trl-0.24; by default recognised by its "
         "keys, in the newest known version")
      ->type_name("TOOL-VERSION");
  app.add_option("--max-isa", max_isa, "highest instruction set to use: avx2, avx512, avx512-bf16 or amx");
}

namespace {

// A card that is asked for by name comes with its own memory: the recipe's memory keys for another device are
// dropped. Its user asks for a part of it by a memory key next to the name.
void make_room_for_card(std::vector<std::string>& sets) {
  const bool names_card = std::any_of(sets.begin(), sets.end(),
                                      [](const std::string& set) { return set.starts_with("memory.gpu="); });
  if (names_card) sets.insert(sets.begin(), {"device=card", "memory.device=auto"});
}

// The length of rows is stated on the command line.
bool states_length(const Overrides& overrides) {
  const auto names_it = [](const std::string& set) { return set.find("max_length") != std::string::npos; };
  return names_it(overrides.environment) ||
         std::any_of(overrides.sets.begin(), overrides.sets.end(), names_it) ||
         std::any_of(overrides.what_if.begin(), overrides.what_if.end(), names_it);
}

// The longest text that the recipe's model knows, where its config.json can be read and sets a bound.
std::optional<int64_t> longest_text_of(const Recipe& recipe, ModelFiles& models) try {
  return models.spec(recipe.model).longest_text();
} catch (const Error&) {  // later code that needs the model reports the error
  return std::nullopt;
}

// Returns whether a file in a recipe's place is a model's config.json, which is enough for a plan.
bool is_model_config(const std::filesystem::path& path, ModelFiles& models) try {
  if (path.filename() != "config.json") return false;
  // As a recipe names its model.
  const std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal().parent_path();
  const nlohmann::json& config = models.config(folder);
  return config.is_object() && config.contains("model_type") && !config.contains("model");
} catch (const Error&) {  // the reader of recipes reports the error
  return false;
}

// A config.json on standard input, which is enough for a plan: the folder that stands for it.
std::optional<std::string> model_on_standard_input(ModelFiles& models) {
  const std::string folder = std::string("/") + kStandardInputWords;  // a path that messages show
  if (models.holds(folder)) return folder;
  if (!nlohmann::json::accept(standard_input())) return std::nullopt;
  const nlohmann::json config = parse_json(standard_input(), kStandardInputWords);
  if (!config.is_object() || !config.contains("model_type") || config.contains("model")) return std::nullopt;
  models.hold(folder, config);
  return folder;
}

// The name in the address of a model's page on the hub, or in a name with a slash at its end; other texts as they are.
std::string pasted_name(const std::string& text) {
  std::string_view name = text;
  bool is_page = false;
  for (const std::string_view start : {"https://", "http://", "huggingface.co/"})
    if (name.starts_with(start)) {
      name.remove_prefix(start.size());
      is_page = true;
    }
  while (name.ends_with('/')) name.remove_suffix(1);
  if (!is_page) return std::string(name);
  const size_t owner = name.find('/');
  return std::string(name.substr(0, owner == std::string_view::npos ? owner : name.find('/', owner + 1)));
}

// Other programs write "qwen2.5:7b".
void refuse_tagged_name(const std::string& path) {
  std::string dashed = path;
  std::replace(dashed.begin(), dashed.end(), ':', '-');
  if (const auto named = dashed != path ? find_shape(dashed) : std::nullopt)
    throw UsageError(formatted("{}: is no file or folder here; on the Hugging Face hub the model is {}", path,
                               named->name));
}

// Rows in JSON: a list, or a first line that is an object before others.
bool begins_as_rows(const std::filesystem::path& path) {
  constexpr int64_t kStart = 64 << 10;
  std::string start = read_start(path, kStart);
  if (start.starts_with("\xEF\xBB\xBF")) start.erase(0, 3);
  start.erase(0, start.find_first_not_of(" \t\r\n"));
  if (start.starts_with('[')) return true;
  const size_t line = start.find('\n');
  const size_t next = start.find_first_not_of(" \t\r\n", line == std::string::npos ? start.size() : line);
  return next != std::string::npos && start[next] == '{' && nlohmann::json::accept(start.substr(0, line));
}

[[noreturn]] void refuse_rows(const std::string& argument) {
  throw UsageError(formatted(
      "{}: holds rows, not a recipe; plimsoll init MODEL {} writes a recipe for a model and these rows",
      argument, quoted(argument)));
}

// A folder without a configuration that has files of rows.
bool is_folder_of_rows(const std::filesystem::path& path) {
  std::error_code failed;
  if (std::filesystem::exists(path / "config.json", failed)) return false;
  for (std::filesystem::directory_iterator at(path, failed), end; !failed && at != end; at.increment(failed))
    if (is_data_file(at->path()) && ending_of(at->path()) != ".json") return true;
  return false;
}

}  // namespace

void refuse_rows_and_weights(const std::string& argument) {
  const std::filesystem::path path = argument;
  std::error_code failed;
  const std::string ending = ending_of(path);
  if (std::filesystem::is_directory(path, failed)) {
    if (is_folder_of_rows(path)) refuse_rows(argument);
  } else if (!std::filesystem::is_regular_file(path, failed)) {
    return;
  } else if (ending == ".safetensors" || ending == ".gguf" || ending == ".bin" || ending == ".pt") {
    throw UsageError(formatted(
        "{}: is a file of weights; a recipe names the model's folder: plimsoll init {} DATA writes one",
        argument, quoted(path.has_parent_path() ? path.parent_path().string() : ".")));
  } else if (is_data_file(path) && ending != ".json") {
    refuse_rows(argument);
  }
}

void refuse_rows_in_json(const std::string& argument) {
  const std::filesystem::path path = argument;
  std::error_code failed;
  if (ending_of(path) == ".json" && std::filesystem::is_regular_file(path, failed) && begins_as_rows(path))
    refuse_rows(argument);
}

namespace {

// The model that the argument in a recipe's place names, if it is one: a folder, the folder of a config.json, or a
// name that leads to one in the cache or, where shapes are taken, in the catalogue. Throws UsageError for a name that
// leads nowhere, or to a model that is not trained.
std::optional<std::string> named_model(const std::string& argument, bool takes_shapes, ModelFiles& models) {
  if (argument == kStandardInput) return takes_shapes ? model_on_standard_input(models) : std::nullopt;
  refuse_rows_and_weights(argument);
  std::error_code unknown;
  if (std::filesystem::is_directory(argument, unknown)) return argument;
  if (is_model_config(argument, models)) {
    const std::string folder = std::filesystem::path(argument).parent_path().string();
    return folder.empty() ? "." : folder;
  }
  if (std::filesystem::exists(argument, unknown)) return std::nullopt;
  const std::string path = pasted_name(argument);
  refuse_tagged_name(path);
  if (!is_hub_name(path, true)) return std::nullopt;
  if (find_in_hub_cache(HubKind::model, path) || model_called(path)) return path;
  if (auto known = model_of_catalogue(path, models); known && (takes_shapes || !models.holds(*known)))
    return known;
  if (const std::string refusal = refusal_of_name(path); !refusal.empty())
    throw UsageError(formatted(
        "{}: is no file or folder here, and plimsoll does not train models of this name: {}", path, refusal));
  const auto named = find_shape(path);
  const std::string fetch = download_command(HubKind::model, named ? named->name : likely_hub_name(path));
  throw UsageError(
      formatted("{}: is no file or folder here, and no model of this name is in the Hugging Face cache "
                "{}{}. A plan needs its small files alone:\n  {} --config-only\n  A training needs all "
                "of them:\n  {}",
                path, hub_cache().string(), takes_shapes ? nearest_words(path) : "", fetch, fetch));
}

// A shape has no tokenizer to read rows with.
void refuse_rows_of_shape(const Recipe& recipe, ModelFiles& models) {
  if (recipe.data.train.empty() || !models.holds(recipe.model)) return;
  const auto known = known_model(recipe.model, models);
  if (!known)
    throw UsageError(
        "data.train: rows are read with the model's tokenizer, and standard input has its shape alone: name the "
        "model's folder, or leave the rows out and state them: --rows COUNT --tokens COUNT");
  const std::string& name = known->named.name;
  throw UsageError(
      formatted("data.train: rows are read with the tokenizer of {}, and the built-in catalogue has its "
                "shape alone. Fetch its small files:\n  {} --config-only\n  or leave the rows out and "
                "state them: --rows COUNT --tokens COUNT",
                name, download_command(HubKind::model, name)));
}

// Notes on the catalogue of a plan whose model is named instead of a recipe.
void say_what_is_known(const Recipe& recipe, ModelFiles& models) {
  const auto known = known_model(recipe.model, models);
  if (!known) return;
  if (known->is_built_in)
    say(
        formatted("note    {}: its shape is that of the built-in catalogue ({}); a config.json of your own "
                  "decides instead",
                  known->named.name, source_words(*known->named.shape)));
  else if (!known->differing.empty())
    say(formatted("note    {}; config.json counts", printable(difference_words(known->differing))));
}

// A recipe's file is opened once: JSON that is not a recipe is opened again, for it may hold rows.
LoadedRecipe load_file(const std::string& path, const Overrides& overrides) try {
  return load_recipe(path, overrides);
} catch (const UsageError&) {
  refuse_rows_in_json(path);
  throw;
}

LoadedRecipe load_with(const RecipeArguments& arguments, const std::vector<std::string>& what_if) {
  Overrides overrides;
  for (const auto& [key, value] : arguments.shortcuts)
    if (!value.empty())
      overrides.sets.push_back(key == "output" ? assignment(key, value) : formatted("{}={}", key, value));
  make_room_for_card(overrides.sets);
  // Behind the shortcuts, so that a `--set` that a report names counts when it is added to the command.
  overrides.sets.insert(overrides.sets.end(), arguments.sets.begin(), arguments.sets.end());
  overrides.what_if = what_if;
  make_room_for_card(overrides.what_if);
  overrides.as_tool = arguments.as_tool;
  overrides.sources = arguments.sources;
  if (const char* environment = std::getenv("PLIMSOLL_SET")) overrides.environment = environment;
  const std::optional<std::string> model =
      named_model(arguments.path, arguments.takes_shapes, *arguments.sources->models);
  if (!model) return load_file(arguments.path, overrides);
  overrides.sets.insert(overrides.sets.begin(), assignment("model", *model));
  LoadedRecipe loaded = recipe_from_overrides(overrides);
  refuse_rows_of_shape(loaded.recipe, *arguments.sources->models);
  // The default is for models that know as much.
  if (const auto longest = longest_text_of(loaded.recipe, *arguments.sources->models);
      longest && !states_length(overrides))
    loaded.recipe.data.max_length = std::min(loaded.recipe.data.max_length, *longest);
  return loaded;
}

}  // namespace

LoadedRecipe RecipeArguments::read() const { return load_with(*this, {}); }

LoadedRecipe RecipeArguments::load(bool quiet) const {
  LoadedRecipe loaded = read();
  for (const std::string& change : loaded.environment_changes) say("note    PLIMSOLL_SET: " + change);
  const std::string notes = quiet ? "" : key_report_notes(loaded.other_tools, printable(quoted(path)));
  if (!notes.empty()) say(std::string_view(notes).substr(0, notes.size() - 1));
  require_present(loaded);
  const bool is_model = named_model(path, takes_shapes, *sources->models).has_value();
  if (takes_shapes && is_model) say_what_is_known(loaded.recipe, *sources->models);
  return loaded;
}

LoadedRecipe RecipeArguments::load_what_if(const std::vector<std::string>& what_if) const {
  return load_with(*this, what_if);
}

RecipeArguments RecipeArguments::on_device(const std::string& device) const {
  RecipeArguments changed = *this;
  changed.shortcuts.erase("memory.gpu");
  std::erase_if(changed.sets, [](const std::string& set) { return set.starts_with("memory.gpu="); });
  changed.change("device", device);
  if (changed.read().recipe.memory.gpu) changed.sets.emplace_back("memory.gpu=null");
  return changed;
}

void RecipeArguments::leave_out_idle_nodes(int64_t devices) {
  nodes = std::clamp(devices, int64_t{1}, nodes);
}

void RecipeArguments::change(const std::string& key, const std::string& value) {
  if (key == "devices") leave_out_idle_nodes(std::strtoll(value.c_str(), nullptr, 10));
  std::erase_if(sets, [&](const std::string& set) { return set.starts_with(key + "="); });
  if (std::any_of(kShortcuts.begin(), kShortcuts.end(), [&](const Shortcut& s) { return key == s.key; })) {
    shortcuts[key] = value;
  } else {
    sets.push_back(formatted("{}={}", key, value));
  }
}

std::string RecipeArguments::words() const {
  std::string text = quoted(path);
  for (const Shortcut& shortcut : kShortcuts)
    if (const auto found = shortcuts.find(shortcut.key); found != shortcuts.end() && !found->second.empty())
      text += formatted(" {} {}", shortcut.option, quoted(found->second));
  for (const std::string& set : sets) text += " --set " + quoted(set);
  if (!as_tool.empty()) text += " --as " + quoted(as_tool);
  if (!max_isa.empty()) text += " --max-isa " + max_isa;
  if (!link.empty()) text += " --link " + link;
  if (nodes != 1 && on_node == 0) text += formatted(" --nodes {}", nodes);
  return text + (no_probe ? " --no-probe" : "");
}

std::optional<Isa> read_isa(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_isa(text, "--max-isa");
}

namespace {

// "20GB/s": bytes, not bits.
double parse_link(const std::string& text) {
  constexpr std::string_view kEach = "/s";
  if (!text.ends_with(kEach))
    throw UsageError(formatted("--link: '{}' is no number of bytes per second, such as 20GB/s", text));
  const int64_t bytes = parse_bytes(text.substr(0, text.size() - kEach.size()), "--link");
  if (bytes == 0) throw UsageError("--link: 0 bytes per second");
  return static_cast<double>(bytes);
}

}  // namespace

MachineOptions RecipeArguments::machine(const Recipe& recipe) const {
  MachineOptions options = {read_isa(max_isa), recipe.threads};
  if (!link.empty()) options.link = parse_link(link);
  options.nodes = nodes;
  options.on_node = on_node;
  // The processes of one machine share its CPUs.
  if (recipe.threads == kAuto && recipe.devices > 1)
    options.threads = std::max<int64_t>(1, available_cpus() / devices_of_node(recipe, nodes, on_node));
  return options;
}

}  // namespace plimsoll
