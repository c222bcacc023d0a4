// `plimsoll eval`: how well a model folder or a finished run predicts and answers the rows of a data set.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tasks/task.h"
#include "train/answer_file.h"
#include "train/answerer.h"

namespace plimsoll {

struct EvalOptions : AnswerOptions {
  std::optional<std::filesystem::path> data;  // none: the evaluation rows of the run in `folder`
  std::vector<std::string> sets;      // keys of the recipe that say how rows are read: "data.columns=..."
  std::optional<int64_t> limit;       // rows
  std::optional<int64_t> max_length;  // tokens of a row; none: the run's, or the default's
  int64_t batch = 0;                  // rows at a time; 0: as many as fit, up to 16
  bool generate = false;              // answer the rows, too
  std::optional<std::filesystem::path> out;  // JSONL of the answers, or of the scores
};

struct LossResult {
  int64_t rows = 0;           // with a target
  int64_t skipped = 0;        // rows without one
  int64_t damaged = 0;        // rows that could not be read, with data.on_error: skip
  int64_t truncated = 0;      // rows longer than max_length
  int64_t tokens = 0;         // read
  int64_t target_tokens = 0;  // that the loss is the mean of
  double loss = 0;            // per target token, or what the task counts; 0 where there is none
  std::string_view unit = "target tokens";  // that
  Metrics metrics = {};                     // of the task
  double seconds = 0;

  // exp(loss): about how many tokens the model hesitates between.
  [[nodiscard]] double perplexity() const;
};

struct Evaluation {
  LossResult loss;
  std::optional<AnswerTally> answers;  // with `generate`
};

// Throws DoesNotFitError before weights are read.
Evaluation evaluate(const EvalOptions& options);

}  // namespace plimsoll
