#include "recipe/load/load.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/outer_split.h"
#include "base/regular_file.h"
#include "base/strings.h"
#include "recipe/dialects/swift.h"
#include "recipe/document/document.h"
#include "recipe/load/builder.h"
#include "recipe/option.h"
#include "recipe/translate/layer.h"
#include "recipe/translate/read_file.h"
#include "recipe/translate/script_defaults.h"
#include "recipe/values.h"

namespace plimsoll {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEnvironment = "PLIMSOLL_SET";

// {a: {b: value}} for the key a.b.
Node nested(std::string_view key, Node value) {
  const std::vector<std::string> parts = split(key, '.');
  for (size_t i = parts.size(); i-- > 0;) {
    value.key = parts[i];
    Node map;
    map.kind = Node::Kind::map;
    map.items.push_back(std::move(value));
    value = std::move(map);
  }
  return value;
}

void apply_assignment(RecipeBuilder& builder, std::string_view option, const std::string& text) {
  Source source = {formatted("{} {}", option, excerpt(text)), false, std::filesystem::current_path()};
  const size_t equals = text.find('=');
  const std::string_view key = trim(std::string_view(text).substr(0, equals));
  // Keys are shallow; the limit keeps what follows from recursing as deep as an argument is long.
  const std::vector<std::string> parts = split(key, '.');
  if (equals == std::string::npos || key.empty() || parts.size() > kMaxDocumentDepth)
    return builder.problem(source.name, "expected key=value, such as method.r=8");
  const std::string_view value = std::string_view(text).substr(equals + 1);
  source.takes_back = !trim(value).empty();
  try {
    builder.apply(nested(key, read_yaml(value)), source);
  } catch (const DocumentError& error) {
    builder.problem(source.name, error.what());
  }
}

std::vector<std::string> split_assignments(std::string_view text) {
  std::vector<std::string> parts = outer_split(text, " \t\n");
  std::erase(parts, "");
  return parts;
}

std::vector<std::string> changes(const Recipe& before, const Recipe& after,
                                 const std::vector<std::string>& keys) {
  std::vector<std::string> lines;
  for (const std::string& key : keys) {
    const Option& option = *find_option(key);
    const std::string was = to_yaml(option.get(before));
    const std::string is = to_yaml(option.get(after));
    if (was != is) lines.push_back(formatted("{} = {} (was {})", key, is, was));
  }
  return lines;
}

// Another method than the file's, to which keys of the file may mean nothing.
bool chooses_method(const std::vector<std::string>& sets) {
  return std::any_of(sets.begin(), sets.end(), [](const std::string& set) {
    return trim(std::string_view(set).substr(0, set.find('='))) == "method.type";
  });
}

LoadedRecipe apply_overrides(RecipeBuilder& builder, const Overrides& overrides, const std::string& name) {
  const Recipe before = builder.current();
  const int first = builder.calls() + 1;
  for (const std::string& text : split_assignments(overrides.environment))
    apply_assignment(builder, kEnvironment, text);
  const std::vector<std::string> from_environment = builder.keys_since(first);
  const Recipe with_environment = builder.current();
  const int first_set = builder.calls() + 1;
  for (const std::string& text : overrides.sets) apply_assignment(builder, "--set", text);
  if (chooses_method(overrides.sets)) builder.leave_out_of_other_methods(first_set);
  const int first_what_if = builder.calls() + 1;
  for (const std::string& text : overrides.what_if) apply_assignment(builder, "what if", text);
  if (!overrides.what_if.empty()) builder.forget_what_means_nothing(first_what_if);

  LoadedRecipe loaded;
  loaded.recipe = builder.finish(name);
  loaded.other_tools = builder.other_tools();
  loaded.missing = builder.missing();
  loaded.states_precision = builder.states_precision();
  // A key that --set then changed again is not the environment's.
  std::vector<std::string> lasting = from_environment;
  for (const std::string& key : builder.keys_since(first_set)) std::erase(lasting, key);
  loaded.environment_changes = changes(before, with_environment, lasting);
  return loaded;
}

}  // namespace

namespace {

// Replaces the node of a key, nested or dotted, or takes it out; inside of a map that is there it may be a
// new one. False where the file has no such key.
bool replace_key(Node& map, std::string_view key, const Node& value, bool is_inner = false) {
  if (map.kind != Node::Kind::map) return false;
  for (auto at = map.items.begin(); at != map.items.end(); ++at) {
    if (at->key == key) {
      Node node = value;
      node.key = at->key;
      node.line = at->line;
      node.key_line = at->key_line;
      if (value.kind == Node::Kind::null)
        map.items.erase(at);
      else
        *at = std::move(node);
      return true;
    }
    if (!at->key.empty() && key.starts_with(at->key) && key[at->key.size()] == '.' &&
        replace_key(*at, key.substr(at->key.size() + 1), value, true))
      return true;
  }
  if (!is_inner || key.find('.') != std::string_view::npos) return false;
  map.items.push_back(value);
  map.items.back().key = key;
  return true;
}

// A key of another tool that the file has is changed where it stands, so that the file's value is gone with
// all that follows from it; it may be one that is refused or not known.
std::vector<std::string> change_theirs(Node& root, const std::vector<std::string>& sets, bool is_of_tool) {
  std::vector<std::string> others;
  for (const std::string& text : sets) {
    const size_t equals = text.find('=');
    const std::string_view key = trim(std::string_view(text).substr(0, equals));
    const std::string_view outer = key.substr(0, key.find('.'));
    const bool is_unknown_inside = is_group(outer) && find_node(root, key) != nullptr;
    const bool is_ours = find_option(key) != nullptr || (is_group(outer) && !is_unknown_inside) ||
                         find_node(root, outer) == nullptr;
    bool is_changed = false;
    if (!is_ours && equals != std::string::npos) {
      try {
        const Node value = read_yaml(std::string_view(text).substr(equals + 1));
        // A key of a training script's file can be taken out; a value for it meets the file's as a layer.
        const bool takes_out = value.kind == Node::Kind::null && equals + 1 < text.size();
        is_changed = (is_of_tool || takes_out) && replace_key(root, key, value);
      } catch (const DocumentError&) {  // NOLINT: reported where it is applied
      }
    }
    if (!is_changed) others.push_back(text);
  }
  return others;
}

// A run with `true` began when the order of windows was the only shuffle.
void shuffle_as_begun(Node& run) {
  const Node* data = find_node(run, "data");
  const Node* shuffle = data == nullptr ? nullptr : find_node(*data, "shuffle");
  if (shuffle != nullptr && read_boolean(*shuffle) == true)
    replace_key(run, "data.shuffle", read_yaml("window"));
}

}  // namespace

namespace {

// A script names files from the folder that it is started in: its own, one above it, or the working folder.
// The folders that a script's relative paths may start in: its own, those above it, and the working folder.
std::vector<fs::path> folders_of_script(const fs::path& script) {
  std::vector<fs::path> folders = {fs::absolute(script).parent_path()};
  for (int i = 0; i < 6 && folders.back().has_parent_path(); ++i)
    folders.push_back(folders.back().parent_path());
  folders.push_back(fs::current_path());
  return folders;
}

// A recipe's path that begins on the author's machine ($1/repo/configs/a.yaml, /home/me/repo/configs/a.yaml): the longest
// end of it, a folder at least, that is a file here.
std::string path_within(const fs::path& script, const std::string& named) {
  const std::vector<fs::path> folders = folders_of_script(script);
  const fs::path whole = fs::path(named).relative_path();
  std::error_code ignored;
  for (auto begin = whole.begin(); begin != whole.end() && std::next(begin) != whole.end(); ++begin) {
    fs::path rest;
    for (auto part = begin; part != whole.end(); ++part) rest /= *part;
    for (const fs::path& folder : folders)
      if (fs::is_regular_file(folder / rest, ignored)) return rest.string();
  }
  return named;
}

fs::path folder_of_script(const fs::path& script, const ShellTraining& training) {
  std::vector<std::string> named = {training.config};
  for (const char* key : {"deepspeed", "deepspeed_config", "accelerate_config", "lora_config"})
    if (const Node* node = find_node(training.keys, key); node != nullptr && node->kind == Node::Kind::scalar)
      named.push_back(node->text);
  std::erase(named, "");
  std::vector<fs::path> folders = folders_of_script(script);
  if (!training.folder.empty()) folders.insert(folders.begin(), folders.front() / training.folder);
  std::error_code ignored;
  const auto first_with = [&](const std::vector<std::string>& files) -> std::optional<fs::path> {
    for (const fs::path& folder : folders)
      for (const std::string& file : files)
        if (fs::is_regular_file(folder / file, ignored)) return folder;
    return std::nullopt;
  };
  if (const auto folder = first_with(named)) return *folder;
  // The script's relative paths start where the program lies.
  const auto folder = training.script.empty() ? std::nullopt : first_with({training.script});
  return folder.value_or(fs::absolute(script).parent_path());
}

std::string shown_file(const std::string& file) {
  return file == kStandardInput ? kStandardInputWords : file;
}

void set_line(Node& node, int line) {
  node.line = node.key_line = line;
  for (Node& item : node.items) set_line(item, line);
}

// A program in Python that is not axolotl has alpaca-lora's words where it calls its model `base_model`.
bool is_of_alpaca_lora(const Node& keys, const ShellTraining& training) {
  return !training.script.empty() && !training.program.starts_with("axolotl") && training.config.empty() &&
         find_node(keys, "base_model") != nullptr;
}

// Its finetune.py: `batch_size` is that of all processes.
std::string word_of_transformers(const std::string& key) {
  static const std::map<std::string, std::string> kWords = {
      {"base_model", "model_name_or_path"},
      {"batch_size", "effective_batch_size"},
      {"micro_batch_size", "per_device_train_batch_size"},
      {"num_epochs", "num_train_epochs"},
      {"cutoff_len", "max_seq_length"},
      {"val_set_size", "test_size"}};
  const auto at = kWords.find(key);
  return at == kWords.end() ? key : at->second;
}

void tell_missing(Node& keys, const ShellTraining& training) {
  Node script;
  script.kind = Node::Kind::scalar;
  script.key = "missing";
  script.text = training.script;
  Node facts;
  facts.kind = Node::Kind::map;
  facts.key = kScriptFactsKey;
  facts.items.push_back(std::move(script));
  set_line(facts, training.line);
  keys.items.push_back(std::move(facts));
}

// Reads what a script's own text says of its arguments: names that it hands them on by, and defaults that decide what
// is trained (recipe/translate/script_defaults.h): keys of the command that neither it nor its recipe says.
void read_script_text(std::vector<std::pair<Node, Source>>& layers, const fs::path& folder,
                      const ShellTraining& training, bool is_alpaca_lora) {
  std::error_code ignored;
  const fs::path file = folder / training.script;
  if (training.script.empty()) return;
  if (!fs::is_regular_file(file, ignored)) return tell_missing(layers.back().first, training);
  ScriptText script = read_script(read_start(file.string(), static_cast<int64_t>(kMaxDocumentBytes)));
  Node& keys = layers.back().first;
  if (is_alpaca_lora)
    for (ScriptArgument& one : script.arguments) one.name = word_of_transformers(one.name);
  if (is_alpaca_lora)
    for (ScriptChoice& one : script.choices) one.argument = word_of_transformers(one.argument);
  decide_choices(keys, script);
  Node facts;
  facts.kind = Node::Kind::map;
  facts.key = kScriptFactsKey;
  const auto tell = [&](const std::string& key, const std::string& text) {
    Node node;
    node.kind = Node::Kind::scalar;
    node.key = key;
    node.text = text;
    facts.items.push_back(std::move(node));
  };
  for (const ScriptUse& use : rename_by_use(keys, script))
    tell("renamed", formatted("{} is its {} (line {})", use.argument, use.name, use.line));
  std::vector<const Node*> said;
  for (const auto& [root, source] : layers) said.push_back(&root);
  if (const WorkedOut one = worked_out(said, script); one.line > 0)
    tell(one.key, formatted("{} (line {})", one.name, one.line));
  if (script.answers > 0) tell("answers", std::to_string(script.answers));
  const bool is_silent = script.adapters > 0 && !says_adapters(said, script.arguments);
  if (is_silent && script.always_adapts) {
    Node on;
    on.kind = Node::Kind::scalar;
    on.text = "true";
    script.arguments.push_back({"use_lora", on, script.adapters});
  } else if (is_silent) {
    tell("adapters", std::to_string(script.adapters));
  }
  Node declared;
  declared.kind = Node::Kind::map;
  declared.key = kDefaultsKey;
  for (const ScriptArgument& one : script_defaults(said, script.arguments)) {
    Node node = one.value;
    node.key = one.name;
    keys.items.push_back(node);
    node.text = formatted("{} {} (line {})", one.name, as_text(one.value), one.line);
    node.kind = Node::Kind::scalar;
    declared.items.push_back(std::move(node));
  }
  for (Node* node : {&declared, &facts}) {
    if (node->items.empty()) continue;
    set_line(*node, training.line);
    keys.items.push_back(std::move(*node));
  }
}

// BELLE's scripts name a file of keys about adapters: {lora_r, lora_alpha, ...}.
void read_adapter_file(Node& keys, const fs::path& folder) {
  const auto named = std::ranges::find(keys.items, "lora_config", &Node::key);
  std::error_code ignored;
  if (named == keys.items.end() || named->kind != Node::Kind::scalar ||
      !fs::is_regular_file(folder / named->text, ignored))
    return;
  const Node file = read_tree((folder / named->text).string());
  const bool is_of_adapters =
      file.kind == Node::Kind::map &&
      std::ranges::all_of(file.items, [](const Node& item) { return item.key.starts_with("lora_"); });
  if (!is_of_adapters) return;
  const int line = named->line;
  keys.items.erase(named);
  for (Node item : file.items) {
    if (find_node(keys, item.key) != nullptr) continue;
    set_line(item, line);
    keys.items.push_back(std::move(item));
  }
}

// The recipe that a script's command names, and the command's own keys.
std::vector<std::pair<Node, Source>> layers_of(const std::string& given) {
  const NamedTraining named = named_training(given);
  const std::string& file = named.file;
  RecipeText read = read_recipe_text(named);
  const std::string shown = shown_file(file);
  if (!read.training) return {{std::move(read.root), {shown, true, fs::absolute(file).parent_path()}}};
  ShellTraining& training = *read.training;
  std::error_code ignored;
  if (!training.config.empty() && !fs::exists(training.config, ignored))
    training.config = path_within(file, training.config);
  const fs::path folder = folder_of_script(file, training);
  std::vector<std::pair<Node, Source>> layers;
  if (!training.config.empty()) {
    const fs::path config = folder / training.config;
    if (!fs::exists(config, ignored))
      throw UsageError(formatted(
          "{}:{}: starts a training by '{}', which is neither beside the script nor above it, nor in the "
          "working folder: start the command in the folder that its paths are relative to",
          shown, training.line, excerpt(training.config)));
    layers.push_back(
        {read_tree(config.string()), {config.string(), true, fs::absolute(config).parent_path()}});
  }
  layers.push_back({training.keys, {shown, true, folder}});
  read_adapter_file(layers.back().first, folder);
  Node& keys = layers.back().first;
  const bool is_alpaca_lora = is_of_alpaca_lora(keys, training);
  if (is_alpaca_lora)
    for (Node& item : keys.items) item.key = word_of_transformers(item.key);
  if (is_swift(training.program))
    read_swift(keys, training);
  else
    read_script_text(layers, folder, training, is_alpaca_lora);
  Node program;
  program.kind = Node::Kind::scalar;
  program.text = training.program;
  program.line = program.key_line = training.line;
  program.key = kProgramKey;
  layers.back().first.items.push_back(std::move(program));
  return layers;
}

std::shared_ptr<RecipeSources> sources_of(const Overrides& overrides) {
  return overrides.sources ? overrides.sources : std::make_shared<RecipeSources>();
}

}  // namespace

LoadedRecipe load_recipe(const std::string& file, const Overrides& overrides) {
  const auto sources = sources_of(overrides);
  const auto known = sources->layers.find(file);
  std::vector<std::pair<Node, Source>> layers =
      known != sources->layers.end() ? known->second
                                     : sources->layers.emplace(file, layers_of(file)).first->second;
  RecipeBuilder builder(*sources->models);
  if (!overrides.as_tool.empty()) builder.set_tool(parse_tool_version(overrides.as_tool));
  Overrides others = overrides;
  for (auto& [root, source] : layers)
    if (root.kind == Node::Kind::map)
      others.sets = change_theirs(
          root, others.sets,
          builder.is_named() || tool_of(root).has_value() || find_node(root, kProgramKey) != nullptr);
  if (overrides.of_run) shuffle_as_begun(layers.front().first);
  if (overrides.of_run)
    builder.apply(nested("data.reading", read_yaml(std::to_string(kFirstReading))), layers.front().second);
  for (const auto& [root, source] : layers) builder.apply(root, source);
  return apply_overrides(builder, others, shown_file(file));
}

LoadedRecipe recipe_from_overrides(const Overrides& overrides) {
  const auto sources = sources_of(overrides);
  RecipeBuilder builder(*sources->models);
  return apply_overrides(builder, overrides, "--set");
}

Recipe parse_recipe(std::string_view text, const std::string& name, const std::filesystem::path& folder) {
  const Source source = {name, true, folder};
  ModelFiles models;
  RecipeBuilder builder(models);
  builder.apply(read_yaml_of(text, source), source);
  return builder.finish(name);
}

std::string assignment(std::string_view key, const std::string& text) {
  try {
    return formatted("{}={}", key, Json(text).dump());
  } catch (const Json::type_error&) {
    throw UsageError(formatted("{}: '{}' is not UTF-8", key, excerpt(text)));
  }
}

void require_present(const LoadedRecipe& loaded) {
  if (!loaded.missing.empty()) throw UsageError(join(loaded.missing, "\n"));
}

void require_trainable(const Recipe& recipe) {
  Problems problems;
  if (recipe.data.train.empty())
    problems.add("data.train", "is missing: name the files to train on (--set data.train=FILE)");
  if (!recipe.output) problems.add("output", "is missing: name the folder of the run (--set output=FOLDER)");
  problems.throw_if_any();
}

}  // namespace plimsoll
