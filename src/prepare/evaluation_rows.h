// The rows that a model is evaluated or scored on: those of its run as its recipe reads them, or a file.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prepare/setup.h"
#include "runs/observer.h"

namespace plimsoll {

struct RowWish {
  std::filesystem::path folder;  // of a run or a model
  std::optional<std::filesystem::path> data;
  std::vector<std::string> sets;  // keys of the recipe that say how rows are read: "data.columns=..."
  std::optional<int64_t> max_length;
  std::optional<DType> precision;
  SharedSources sources;  // of recipes and the model
};

// A model with its adapter as a task has it; rows are cut to the model's positions.
struct EvaluationRows {
  Resolved resolved;
  Experiment experiment;
  std::vector<std::filesystem::path> files;  // that are read
};

// Throws UsageError where the run has no rows to evaluate on and none are named.
EvaluationRows rows_to_evaluate(const RowWish& wish, const std::string& chat_template,
                                const ModelPaths& paths);
// The rows as the run read its own. A file that is named may be of another format: then as its columns say.
DataSetup open_evaluation(EvaluationRows& requested, const RowWish& wish, RunObserver& observer);

// `rewards`: scores of a reward model; else the classes of a classifier. Throws UsageError for a run of
// another task.
EvaluationRows rows_to_score(const RowWish& wish, bool rewards, const ModelPaths& paths);

// data.columns and data.reading of the run in the folder, or as `sets` name them.
struct RunReading {
  std::map<std::string, std::string> columns;
  int64_t rules = kReading;
};
RunReading reading_of_run(const std::filesystem::path& folder, const std::vector<std::string>& sets,
                          const SharedSources& sources);
// The date that the templates of the run in the folder print, where it states one: YYYY-MM-DD.
std::optional<std::string> date_of_run(const std::filesystem::path& folder, const SharedSources& sources);

}  // namespace plimsoll
