#include "prepare/first_recipe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/strings.h"
#include "base/units.h"
#include "data/batch/statistics.h"
#include "data/files/cell.h"
#include "formats/model_folder.h"
#include "models/spec.h"
#include "prepare/setup.h"
#include "prepare/task_setup.h"
#include "recipe/document/problems.h"
#include "recipe/hub.h"
#include "recipe/load/load.h"
#include "recipe/option.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLookedAt = 2000;       // rows whose lengths are measured
constexpr int64_t kRowsToHoldOut = 200;   // fewer are too few to give some away
constexpr int64_t kLongestLength = 4096;  // beyond it the length is a choice, not a finding
constexpr int64_t kLengthMultiple = 64;   // kernels like it

// The rows as training would read them.
struct Looked {
  std::vector<std::string> columns;  // "prompt (string)"
  RowFormat format = RowFormat::text;
  DataStatistics lengths;
  int64_t rows = 0;
  std::vector<std::string> rendering;
};

// The task that rows and model suggest.
struct Suggested {
  Task task = Task::sft;
  std::vector<std::string> labels;  // of classes that have no names in the model
  bool numbers = false;
};

bool has(std::span<const Column> columns, std::string_view name) {
  return std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
}

// Numbers that are whole are classes, and so are words.
bool is_measure(const std::string& label) {
  char* end = nullptr;
  const double number = std::strtod(label.c_str(), &end);
  return !label.empty() && *end == '\0' && number != std::floor(number);
}

// The labels of the first rows, each once and in order: numbers by their size.
std::vector<std::string> first_labels(Dataset& dataset, const std::string& column) {
  dataset.select(std::vector<std::string>{column}, ReadAs::json);
  const auto before = [](const std::string& a, const std::string& b) {
    const bool numbers = a.find_first_not_of("0123456789") == b.find_first_not_of("0123456789") &&
                         a.find_first_not_of("0123456789") == std::string::npos;
    return numbers && a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  std::set<std::string, decltype(before)> labels(before);
  int64_t seen = 0;
  for (size_t unit = 0; unit < dataset.units().size() && seen < kLookedAt; ++unit) {
    dataset.hold(std::vector<size_t>{unit});
    const PlacedUnit& rows = dataset.units()[unit];
    for (int64_t i = 0; i < rows.rows && seen < kLookedAt; ++i, ++seen) {
      Row cells;
      dataset.read(rows.first_row + i, cells);
      const auto& label = cells.front().json;
      if (label.is_string()) labels.insert(label.get<std::string>());
      if (label.is_number()) labels.insert(label.dump());
    }
  }
  dataset.hold({});
  return {labels.begin(), labels.end()};
}

// The column of labels, as the recipe names it.
std::string label_column(const Recipe& recipe) {
  const auto named = recipe.data.columns.find("label");
  return named == recipe.data.columns.end() ? "label" : named->second;
}

// Rows that a classifier could read: a text with its label, or as the recipe names them.
bool are_labelled(std::span<const Column> columns, const Recipe& recipe) {
  try {
    bind_columns(columns, RowFormat::sentence_label, recipe.data.columns, "");
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// Rows of labels are for a classifier, pairs of answers for preferences, and a T5 or an encoder has a task of
// its own.
Suggested suggested_task(const Recipe& recipe, const ModelSpec& model) {
  std::vector<WeightedPath> paths;
  for (const TrainSource& source : recipe.data.train) paths.push_back({source.path, source.weight});
  Dataset dataset = Dataset::open(paths);
  const auto columns = dataset.columns();
  const bool answers = has(columns, "response") || has(columns, "messages");
  Suggested result;
  if (has(columns, "chosen") && has(columns, "rejected"))
    result.task = model.scores_sequences || model.encoder_decoder ? Task::reward : Task::dpo;
  else if (model.encoder && !model.scores_sequences && has(columns, "text") && !are_labelled(columns, recipe))
    result.task = Task::mlm;
  else if (model.encoder || (are_labelled(columns, recipe) && !answers))
    result.task = Task::classify;
  else if (model.encoder_decoder)
    result.task = Task::seq2seq;
  if (result.task != Task::classify) return result;
  bind_columns(columns, RowFormat::sentence_label, recipe.data.columns, recipe.data.train.front().path);
  if (model.labels > 0) return result;
  result.labels = first_labels(dataset, label_column(recipe));
  result.numbers = std::any_of(result.labels.begin(), result.labels.end(), is_measure);
  return result;
}

std::string list_of(const std::vector<std::string>& labels) { return to_yaml(Json(labels)); }

// The recipe with what was asked for, and the keys that were.
struct Wished {
  Recipe recipe;
  SharedSources sources;
  std::set<std::string> keys;
};

void suggest(const Suggested& suggested, Overrides& overrides) {
  if (suggested.task == Task::sft) return;
  overrides.sets.push_back(assignment("task", std::string(to_string(suggested.task))));
  if (suggested.numbers)
    overrides.sets.emplace_back("classify.problem=numbers");
  else if (suggested.labels.size() > 1)
    overrides.sets.push_back("classify.labels=" + list_of(suggested.labels));
}

// Returns true if one of them gives a key that begins so.
bool says(const std::vector<std::string>& sets, std::string_view key) {
  return std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return trim(set).starts_with(key); });
}

// Returns true if the default holds out rows to evaluate on.
bool holds_out(const Recipe& recipe) {
  std::vector<WeightedPath> paths;
  for (const TrainSource& source : recipe.data.train) paths.push_back({source.path, source.weight});
  Dataset dataset = Dataset::open(paths);
  dataset.select(std::vector<std::string>{dataset.columns().front().name}, ReadAs::json);
  return dataset.rows() >= kRowsToHoldOut;
}

// The recipe; what is wrong with the model or the rows is not reported of a --set that was not written.
LoadedRecipe read_arguments(const Overrides& overrides) try {
  LoadedRecipe loaded = recipe_from_overrides(overrides);
  require_present(loaded);
  return loaded;
} catch (const UsageError& error) {
  std::string text = error.what();
  constexpr size_t kArguments = 2;
  for (size_t i = 0; i < kArguments; ++i) {
    const std::string place = formatted("--set {}: ", overrides.sets[i]);
    for (size_t at = text.find(place); at != std::string::npos; at = text.find(place))
      text.erase(at, place.size());
  }
  if (dynamic_cast<const RecipeError*>(&error) != nullptr) throw RecipeError(text);
  throw UsageError(text);
}

Wished wished(const FirstRecipe& wish) {
  Wished result;
  result.sources = std::make_shared<RecipeSources>();
  Overrides overrides;
  overrides.sources = result.sources;
  overrides.sets = {assignment("model", wish.model.string()), assignment("data.train", wish.data.string()),
                    "data.max_length=" + std::to_string(int64_t{1} << 24), "method.type=" + wish.method};
  // The rows decide the rest of the recipe, so that they are looked at first.
  Overrides of_rows = overrides;
  for (const std::string& set : wish.sets)
    if (trim(set).starts_with("data")) of_rows.sets.push_back(set);
  const LoadedRecipe first = read_arguments(overrides);
  Recipe before = first.recipe;
  const fs::path config = fs::path(before.model) / "config.json";
  // A missing model is reported where the recipe is read.
  if (fs::exists(config)) {
    const Recipe rows = recipe_from_overrides(of_rows).recipe;
    const bool stated = says(wish.sets, "task");
    if (!stated || (says(wish.sets, "task=classify") && !says(wish.sets, "classify"))) {
      const Suggested suggested = suggested_task(rows, result.sources->models->spec(before.model));
      if (!stated || suggested.task == Task::classify) suggest(suggested, overrides);
    }
    const bool evaluates = says(wish.sets, "eval") || says(wish.sets, "save") || says(wish.sets, "stop");
    if (evaluates && rows.data.eval.kind == EvalSource::Kind::none && holds_out(rows))
      overrides.sets.emplace_back("data.eval=2%");
    before = recipe_from_overrides(overrides).recipe;
  }
  for (const std::string& text : wish.sets) {
    overrides.sets.push_back(text);
    const std::string key(trim(std::string_view(text).substr(0, text.find('='))));
    const Option* option = find_option(key);
    if (option != nullptr && !option->is_part) result.keys.insert(key);
  }
  const LoadedRecipe loaded = recipe_from_overrides(overrides);
  require_present(loaded);
  result.recipe = loaded.recipe;
  // A group (data={...}) and other tools' keys say keys of ours.
  for (const Option& option : options())
    if (!option.is_part && to_yaml(option.get(before)) != to_yaml(option.get(loaded.recipe)))
      result.keys.insert(option.key);
  return result;
}

Looked look_at(const Resolved& resolved) {
  DataSetup data = open_data(resolved);
  check_internal(data.train.has_value(), "first_recipe: data without rows");
  Looked looked;
  looked.format = data.train->reading.columns.format;
  looked.rows = data.train->dataset.rows();
  looked.rendering = data.summary->rendering;
  for (const Column& column : data.train->dataset.columns())
    looked.columns.push_back(formatted("{} ({})", column.name, column.type));
  std::vector<int64_t> first(static_cast<size_t>(std::min(looked.rows, kLookedAt)));
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i);
  looked.lengths =
      measure_data(data.train->dataset, RowSubset::only(looked.rows, std::move(first)), data.train->encoder);
  if (looked.lengths.rows == looked.lengths.skipped)
    throw UsageError(resolved.recipe.data.train.front().path + ": the first rows have no target to train on");
  return looked;
}

int64_t suggested_length(const Looked& looked, const ModelSpec& model) {
  const int64_t most =
      std::min(kLongestLength, model.max_positions > 0 ? model.max_positions : kLongestLength);
  return std::min(most, round_up(std::max<int64_t>(looked.lengths.longest, 1), kLengthMultiple));
}

// As the recipe writes a path: relative where that is shorter than going back to the root.
std::string path_text(const fs::path& path, const fs::path& folder) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path start = folder.empty() ? fs::current_path() : fs::absolute(folder);
  const fs::path relative = whole.lexically_relative(start.lexically_normal());
  const std::string text =
      relative.empty() || relative.string().starts_with("../../..") ? whole.string() : relative.string();
  return to_yaml(Json(text));
}

// Letters, digits and what else file names have.
std::string as_file_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    if (plain) name += c;
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  return name.substr(0, 60);
}

// The name of the data: "tickets" of tickets.csv, "facts" of facts/train-00000-of-00002.parquet.
std::string data_name(const fs::path& data) {
  constexpr std::array<std::string_view, 6> kSayNothing = {"train", "data", "dataset", "rows", "all", ""};
  fs::path path = data.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::string name = fs::is_directory(path) || is_hub_name(data.string(), true) ? path.filename().string()
                                                                                : path.stem().string();
  for (int up = 0; up < 2; ++up) {
    name = name.substr(0, name.find("-0000"));
    if (std::find(kSayNothing.begin(), kSayNothing.end(), name) == kSayNothing.end()) break;
    path = path.parent_path();
    name = path.filename().string();
  }
  const std::string plain = as_file_name(name);
  return plain.find_first_not_of('.') == std::string::npos ? "data" : plain;
}

// A folder of no other run: the same model with other data, another method, or once more, has one of its own.
std::string output_of(const FirstRecipe& wish, const std::string& model) {
  const std::string name = formatted("runs/{}-{}-{}", as_file_name(model.substr(model.rfind('/') + 1)),
                                     data_name(wish.data), wish.method);
  std::string free = name;
  for (int number = 2; fs::exists(wish.out.parent_path() / free); ++number)
    free = formatted("{}-{}", name, number);
  return free;
}

// `key: value  # comment`, comments below each other; keys of a group in one line, those of data below it.
class Draft {
 public:
  // `folder` is that of the recipe.
  Draft(const Wished& wish, fs::path folder) : wish_(wish), folder_(std::move(folder)) {}

  // Names of folders and columns stand in headings and comments: none may end its line.
  void heading(const std::string& text) { text_ += formatted("# {}\n", printable(text)); }
  // A key with what is suggested for it; what was asked for stands in its place.
  void say(const std::string& key, const std::string& value, const std::string& comment = "") {
    const bool requested = wish_.keys.contains(key);
    if (requested) said_.insert(key);
    const size_t dot = key.find('.');
    const std::string group = key.substr(0, dot == std::string::npos ? 0 : dot);
    if (group != group_ || group.empty()) end_group();
    group_ = group;
    entries_.push_back({dot == std::string::npos ? key : key.substr(dot + 1),
                        requested ? wished_value(key) : value, requested ? "" : comment});
  }
  // Keys that were asked for of groups that have no suggestion.
  void say_stated(const std::string& key) {
    if (!said_.contains(key) && key != "output") say(key, "");
  }
  [[nodiscard]] std::string finish() {
    end_group();
    return text_;
  }

 private:
  struct Entry {
    std::string name, value, comment;
  };

  [[nodiscard]] std::string wished_value(const std::string& key) const {
    if (key == "output" && wish_.recipe.output) return path_text(*wish_.recipe.output, folder_);
    return to_yaml(find_option(key)->get(wish_.recipe));
  }

  void line(const std::string& text, const std::string& comment) {
    constexpr size_t kColumn = 42;
    text_ += text;
    if (!comment.empty())
      text_ += formatted("{}# {}", std::string(text.size() < kColumn ? kColumn - text.size() : 2, ' '),
                         printable(comment));
    text_ += '\n';
  }

  // The group's lines, with what was asked for of it beyond them.
  void end_group() {
    if (entries_.empty()) return;
    for (const std::string& key : wish_.keys)
      if (!group_.empty() && key.starts_with(group_ + ".") && said_.insert(key).second)
        entries_.push_back({key.substr(group_.size() + 1), wished_value(key), ""});
    const bool one_size = group_ == "memory" && entries_.size() == 1 && entries_.front().name == "device";
    if (one_size) {
      line("memory: " + entries_.front().value, entries_.front().comment);
    } else if (group_.empty()) {
      line(formatted("{}: {}", entries_.front().name, entries_.front().value), entries_.front().comment);
    } else if (group_ == "data") {
      text_ += "\ndata:\n";
      for (const Entry& entry : entries_) line(formatted("  {}: {}", entry.name, entry.value), entry.comment);
      text_ += "\n";
    } else {
      std::vector<std::string> parts;
      for (const Entry& entry : entries_) parts.push_back(formatted("{}: {}", entry.name, entry.value));
      line(formatted("{}: {{{}}}", group_, join(parts, ", ")), entries_.front().comment);
    }
    entries_.clear();
  }

  const Wished& wish_;
  fs::path folder_;
  std::set<std::string> said_;
  std::string text_, group_;
  std::vector<Entry> entries_;
};

void say_data(Draft& draft, const std::string& train, const Looked& looked, const ModelSpec& model) {
  const int64_t length = suggested_length(looked, model);
  const DataStatistics& lengths = looked.lengths;
  const int64_t used = std::max<int64_t>(lengths.rows - lengths.skipped, 1);
  // A row may have several sequences (a pair, a source with its target). The mean is of whole rows: above the
  // longest sequence it would only puzzle.
  const bool has_mean = lengths.tokens <= lengths.longest * used;
  draft.say("data.train", train,
            formatted("{} rows: {}", format_count(looked.rows), join(looked.columns, ", ")));
  if (looked.rows >= kRowsToHoldOut)
    draft.say("data.eval", "2%", "held out of the training rows; a file is possible too");
  else
    draft.say("data.eval", "null", "too few rows to hold some out; name a file to evaluate on");
  draft.say("data.format", std::string(to_string(looked.format)), "from the columns");
  draft.say("data.max_length", std::to_string(length),
            formatted("tokens; longest of {} rows looked at: {}{}{}", format_count(lengths.rows),
                      format_count(lengths.longest),
                      has_mean ? ", on average " + format_count(lengths.tokens / used) : "",
                      lengths.longest > length ? "; longer ones are cut" : ""));
}

// The task where it is not that of answers, and the keys that it needs.
void say_task(Draft& draft, const Recipe& recipe, const Looked& looked) {
  if (recipe.task == Task::sft) return;
  const auto value = [&](const char* key) { return to_yaml(find_option(key)->get(recipe)); };
  const char* why = recipe.task == Task::classify ? "from the column of labels"
                    : recipe.task == Task::dpo    ? "from the pairs of answers; or reward"
                                                  : "from the model and the columns";
  draft.say("task", std::string(to_string(recipe.task)), why);
  if (recipe.task != Task::classify) return;
  if (recipe.classify.problem != ClassProblem::one_of)
    draft.say("classify.problem", value("classify.problem"));
  if (!recipe.classify.labels.empty())
    draft.say("classify.labels", value("classify.labels"),
              formatted("those of {} rows: complete them, or give them other names",
                        format_count(looked.lengths.rows)));
}

void say_method(Draft& draft, MethodType method) {
  if (method == MethodType::full) {
    draft.say("method.type", "full", "all weights train; lora takes much less memory");
    return;
  }
  const bool lora = method == MethodType::lora;
  draft.say("method.type", lora ? "lora" : "qlora",
            lora ? "or qlora (4-bit base weights), or full" : "4-bit base weights; or lora, or full");
  draft.say("method.r", "16");
  draft.say("method.alpha", "32");
}

void say_training(Draft& draft, const Wished& wish, const Looked& looked) {
  const bool full = wish.recipe.method.type == MethodType::full;
  const bool requested = wish.keys.contains("batch.effective");
  const int64_t effective = requested ? wish.recipe.batch.effective : std::min<int64_t>(16, looked.rows);
  draft.say("batch.effective", std::to_string(effective), "sequences of a step; the planner divides them");
  // Preferences are trained at rates far below those of answers.
  const bool pairs = wish.recipe.task == Task::dpo;
  draft.say("optimizer.lr", pairs ? (full ? "1e-6" : "2e-5") : full ? "2e-5" : "2e-4");
  const int64_t rows = looked.rows >= kRowsToHoldOut ? looked.rows - looked.rows / 50 : looked.rows;
  if (wish.keys.contains("schedule.max_steps"))
    draft.say("schedule.max_steps", "");
  else
    draft.say("schedule.epochs", "1",
              rows <= effective ? "about 1 step, whose learning rate is 0 as warm-up begins: take more epochs"
                                : formatted("about {} steps", format_count(ceil_div(rows, effective))));
  draft.say("precision", "bf16", "fp32, bf16, bf16-master or bf16-pure");
  draft.say("memory.device", "auto", "or a size such as 8GiB: what the whole process may take");
}

}  // namespace

WrittenRecipe first_recipe(const FirstRecipe& wish) {
  const Wished wished_recipe = wished(wish);
  const Recipe& recipe = wished_recipe.recipe;
  const Resolved resolved = resolve(recipe, wished_recipe.sources->models);
  const ModelSpec& model = resolved.model;
  Recipe of_all_rows = recipe;  // what is held out is looked at as well
  if (!wished_recipe.keys.contains("data.eval")) of_all_rows.data.eval = {};
  const Looked looked = look_at(resolve_as(resolved, of_all_rows));
  const auto hub = hub_model_of(recipe.model);
  const std::string name = model_name(recipe.model);
  const fs::path folder = wish.out.parent_path();
  Draft draft(wished_recipe, folder);
  draft.heading(formatted("{}: {}", name, model.describe()));
  draft.heading(
      "Written by `plimsoll init`. `plimsoll plan` says what a run of it takes, `plimsoll train` runs it;");
  draft.heading("`plimsoll recipe --explain` lists all keys.");
  draft.say("model", hub ? to_yaml(Json(hub->name)) : path_text(recipe.model, folder));
  const bool without_weights = !has_weights(recipe.model);
  const bool needs_weights = without_weights && recipe.method.type != MethodType::full;
  if (without_weights && !needs_weights)
    draft.say("init", "random", "the folder has no weights to start from");
  if (needs_weights)
    draft.heading(
        "The folder has no weights: `plan` works without them, `train` needs model.safetensors there.");
  say_task(draft, recipe, looked);
  const bool hub_data = recipe.data.train.size() > 1 || !fs::exists(wish.data);
  say_data(draft,
           hub_data ? to_yaml(Json(wish.data.string())) : path_text(recipe.data.train.front().path, folder),
           looked, model);
  say_method(draft, recipe.method.type);
  say_training(draft, wished_recipe, looked);
  for (const std::string& key : wished_recipe.keys) draft.say_stated(key);
  draft.say("output", to_yaml(Json(output_of(wish, name))));
  return {draft.finish(), looked.rendering, needs_weights};
}

}  // namespace plimsoll
