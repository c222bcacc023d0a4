// Options of where rows come from and what becomes of those that do not fit.
#include "base/error.h"
#include "base/strings.h"
#include "recipe/option_types.h"

namespace plimsoll {

using namespace option_types;  // NOLINT: as in options.cc

Option data_train() {
  return make(
      "data.train", [](auto& recipe) -> auto& { return recipe.data.train; },
      "a path, a list of paths or of {path, weight}, or null",
      "files, folders or patterns such as data/*.parquet; weight: how often an epoch visits the rows",
      read_sources, [](const std::vector<TrainSource>& sources) { return print(sources); });
}

Option data_columns() {
  static const std::vector<std::string> kNames = {"prompt", "response",  "messages", "tools",
                                                  "text",   "input_ids", "labels"};
  Option option;
  option.key = "data.columns";
  option.values = "a map such as {prompt: question, response: answer}";
  option.meaning = "names of the columns in the files: " + join(kNames, ", ");
  option.set = [](Recipe& recipe, const Node& node, Folder) {
    if (node.kind != Node::Kind::map) return false;
    for (const Node& item : node.items) {
      const auto column = read_text(item);
      if (std::find(kNames.begin(), kNames.end(), item.key) == kNames.end())
        throw UsageError("data.columns: '" + excerpt(item.key) + "' is no column; there are " +
                         join(kNames, ", "));
      if (!column) return false;
      recipe.data.columns[item.key] = *column;
    }
    return true;
  };
  option.get = [](const Recipe& recipe) {
    Json columns = Json::object();
    for (const auto& [name, column] : recipe.data.columns) columns[name] = column;
    return columns;
  };
  return option;
}

Option data_truncation() {
  return choice<Truncation>(
      "data.truncation", [](auto& recipe) -> auto& { return recipe.data.truncation; },
      {{"right", Truncation::right}, {"left", Truncation::left}},
      "the end that sequences beyond max_length lose");
}

Option data_on_error() {
  return choice<RowErrors>(
      "data.on_error", [](auto& recipe) -> auto& { return recipe.data.on_error; },
      {{"stop", RowErrors::stop}, {"skip", RowErrors::skip}},
      "a row that cannot be read ends the run, or is counted and left out");
}

}  // namespace plimsoll
