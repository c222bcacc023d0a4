// The rows of a data set through a forward program: what `eval`, `score` and `classify` share.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/answerer.h"

namespace plimsoll {

struct RowOptions : AnswerOptions {
  std::optional<std::filesystem::path> data;
  std::vector<std::string> sets;      // keys of the recipe that say how rows are read: "data.columns=..."
  std::optional<int64_t> limit;       // rows
  std::optional<int64_t> max_length;  // tokens of a row; none: the run's, or the default's
  int64_t batch = 0;                  // rows at a time; 0: as many as fit, up to 16
  std::optional<std::filesystem::path> out;  // JSONL of the answers, or of the scores
};

// The model with its adapter as the recipe's task has it, at the options' precision; the recipe's rows are
// cut to the model's positions. Throws UsageError.
Experiment experiment_of(const RowOptions& options, const ModelPaths& paths, Recipe& recipe);

struct RowPlan {
  int64_t batch = 1;
  std::vector<Graph> programs;
  ArenaLayout layout;
  int64_t host_bytes = 0;  // beside the arena
  [[nodiscard]] int64_t bytes() const { return layout.arena_bytes() + host_bytes; }
};

// The stated number of rows at a time, or the largest that fits. `what` needs it: "evaluation". Throws
// DoesNotFitError.
RowPlan fitting_rows(const Experiment& experiment, const RowOptions& options, int64_t rows,
                     const CpuSettings& cpu, const std::string& what);

// "plan    device 12.3 MiB · 16 rows of 64 tokens at a time · bf16"
std::string plan_line(const RowPlan& plan, const Experiment& experiment);

}  // namespace plimsoll
