// Runs the rows of a data set through a forward program, for `eval`, `score` and `classify`.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch/effective_batch.h"
#include "infer/answerer.h"
#include "prepare/evaluation_rows.h"
#include "runtime/executor.h"
#include "train/session.h"

namespace plimsoll {

struct RowOptions : AnswerOptions {
  std::optional<std::filesystem::path> data;
  std::vector<std::string> sets;      // keys of the recipe that say how rows are read: "data.columns=..."
  std::optional<int64_t> limit;       // rows
  std::optional<int64_t> max_length;  // tokens of a row; none: the run's, or the default's
  int64_t batch = 0;                  // rows at a time; 0: as many as fit, up to 16
  std::optional<std::filesystem::path> out;  // JSONL of the answers, or of the scores
  // The options that prepare/evaluation_rows.h opens the rows by.
  [[nodiscard]] RowWish wish() const { return {folder, data, sets, max_length, precision, sources}; }
};

struct RowPlan {
  InferenceDevice device;
  Plan plan;
  // Rows at a time.
  [[nodiscard]] int64_t batch() const { return plan.variant.micro_batch; }
};

// The stated number of rows at a time, or the largest that fits. `what` needs it: "evaluation". Throws
// DoesNotFitError.
RowPlan fitting_rows(const Experiment& experiment, const RowOptions& options, int64_t rows,
                     const InferenceDevice& device, const std::string& what);

// The counts of rows that ran and of those that were left out.
struct RowTally {
  int64_t rows = 0;       // that went through the program
  int64_t skipped = 0;    // too long, where the recipe drops such rows, or without a target
  int64_t damaged = 0;    // that could not be read, with data.on_error: skip
  int64_t truncated = 0;  // longer than max_length
  int64_t tokens = 0;
  double seconds = 0;
  std::string device = {};  // what they went through it on
};

// The program of a plan over weights that are read. It refers to the plan and the experiment.
class RowProgram {
 public:
  using Next = std::function<const EffectiveBatch*()>;  // nullptr: no more
  using Done = std::function<void(const EffectiveBatch&, const MicroBatch&)>;

  RowProgram(const RowPlan& plan, const Experiment& experiment, const ModelPaths& paths,
             RunObserver& observer);

  // Once. `done` is called after each micro-batch, while its scores are there.
  RowTally run(const Next& next, const Done& done);

  // The scores of the last micro-batch, f32 [B, outputs]; for tasks with scores.
  [[nodiscard]] std::span<const float> scores();
  // The sums of LossRequest::loss_name after a run.
  [[nodiscard]] std::span<const double> sums() const;

 private:
  const RowPlan& plan_;
  const Experiment& experiment_;
  Session session_;
  Executor program_;
  std::vector<float> scores_;
};

// "plan    device 12.3 MiB · 16 rows of 64 tokens at a time · bf16"
std::string row_plan_line(const RowPlan& plan, const Experiment& experiment);

}  // namespace plimsoll
