#include "train/first_recipe.h"

#include <algorithm>

#include "base/error.h"
#include "base/print.h"
#include "base/strings.h"
#include "base/units.h"
#include "data/statistics.h"
#include "io/model_folder.h"
#include "models/spec.h"
#include "recipe/load.h"
#include "recipe/option.h"
#include "train/setup.h"

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
};

Recipe recipe_of(const FirstRecipe& wish) {
  Overrides overrides;
  overrides.sets = {assignment("model", wish.model.string()), assignment("data.train", wish.data.string()),
                    "data.max_length=" + std::to_string(int64_t{1} << 24), "method.type=" + wish.method};
  const LoadedRecipe loaded = recipe_from_overrides(overrides);
  require_present(loaded);
  return loaded.recipe;
}

Looked look_at(const Recipe& recipe, int64_t vocab) {
  DataSetup data = open_data(recipe, vocab);
  check_internal(data.train.has_value(), "first_recipe: data without rows");
  Looked looked;
  looked.format = data.train->encoder.options().format;
  looked.rows = data.train->dataset.rows();
  for (const Column& column : data.train->dataset.columns())
    looked.columns.push_back(column.name + " (" + column.type + ")");
  std::vector<int64_t> first(static_cast<size_t>(std::min(looked.rows, kLookedAt)));
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i);
  looked.lengths =
      measure_data(data.train->dataset, RowSubset::only(looked.rows, std::move(first)), data.train->encoder);
  if (looked.lengths.rows == looked.lengths.skipped)
    throw UsageError(recipe.data.train.front().path + ": the rows looked at have nothing to learn from");
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

std::string name_of(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

bool has_weights(const fs::path& folder) {
  return fs::exists(folder / "model.safetensors") || fs::exists(folder / "model.safetensors.index.json");
}

// Lines of `key: value  # comment`, comments below each other.
class Lines {
 public:
  void heading(const std::string& text) { add(text); }
  // Names of folders and columns stand in them: none may end its line.
  void add(const std::string& line, const std::string& comment = "") {
    lines_.emplace_back(printable(line), printable(comment));
  }
  [[nodiscard]] std::string text() const {
    constexpr size_t kColumn = 42;
    std::string all;
    for (const auto& [line, comment] : lines_) {
      all += line;
      if (!comment.empty())
        all += std::string(line.size() < kColumn ? kColumn - line.size() : 2, ' ') + "# " + comment;
      all += '\n';
    }
    return all;
  }

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

void add_data(Lines& lines, const FirstRecipe& wish, const Looked& looked, const ModelSpec& model) {
  const fs::path folder = wish.out.parent_path();
  const int64_t length = suggested_length(looked, model);
  const DataStatistics& lengths = looked.lengths;
  const int64_t used = std::max<int64_t>(lengths.rows - lengths.skipped, 1);
  lines.add("data:");
  lines.add("  train: " + path_text(wish.data, folder),
            format_count(looked.rows) + " rows: " + join(looked.columns, ", "));
  if (looked.rows >= kRowsToHoldOut)
    lines.add("  eval: 2%", "held out of the training rows; a file is possible too");
  else
    lines.add("  eval: null", "too few rows to hold some out; name a file to evaluate on");
  lines.add("  format: " + std::string(to_string(looked.format)), "from the columns");
  lines.add("  max_length: " + std::to_string(length),
            "tokens; longest of " + format_count(lengths.rows) + " rows looked at: " +
                format_count(lengths.longest) + ", on average " + format_count(lengths.tokens / used) +
                (lengths.longest > length ? "; longer ones are cut" : ""));
}

}  // namespace

std::string first_recipe(const FirstRecipe& wish) {
  const Recipe recipe = recipe_of(wish);
  const ModelSpec model = read_model_spec(fs::path(recipe.model) / "config.json");
  const Looked looked = look_at(recipe, model.vocab);
  const std::string name = name_of(recipe.model);
  Lines lines;
  lines.heading("# " + name + ": " + model.describe());
  lines.heading(
      "# Written by `plimsoll init`. `plimsoll plan` says what a run of it takes, `plimsoll train` runs it;");
  lines.heading("# `plimsoll recipe --explain` lists all keys.");
  lines.add("model: " + path_text(recipe.model, wish.out.parent_path()));
  if (!has_weights(recipe.model)) lines.add("init: random", "the folder has no weights to start from");
  lines.heading("");
  add_data(lines, {recipe.model, recipe.data.train.front().path, wish.out, wish.method}, looked, model);
  lines.heading("");
  if (wish.method == "full") {
    lines.add("method: {type: full}", "all weights train; lora takes much less memory");
  } else {
    lines.add("method: {type: " + wish.method + ", r: 16, alpha: 32}",
              wish.method == "lora" ? "or qlora (4-bit base weights), or full"
                                    : "4-bit base weights; or lora, or full");
  }
  const int64_t effective = std::min<int64_t>(16, looked.rows);
  lines.add("batch: {effective: " + std::to_string(effective) + "}",
            "sequences of a step; the planner divides them");
  lines.add(wish.method == "full" ? "optimizer: {lr: 2e-5}" : "optimizer: {lr: 2e-4}");
  const int64_t rows = looked.rows >= kRowsToHoldOut ? looked.rows - looked.rows / 50 : looked.rows;
  lines.add("schedule: {epochs: 1}", "about " + format_count(ceil_div(rows, effective)) + " steps");
  lines.add("precision: bf16", "fp32, bf16, bf16-master or bf16-pure");
  lines.add("memory: auto", "or a size such as 8GiB: what the whole process may take");
  lines.add("output: " + to_yaml(Json("runs/" + name + "-" + wish.method)));
  return lines.text();
}

}  // namespace plimsoll
