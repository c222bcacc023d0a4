// `plimsoll eval`: how well a model folder or a finished run predicts and answers the rows of a data set.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "infer/answer_file.h"
#include "infer/row_program.h"
#include "tasks/task.h"

namespace plimsoll {

// Without data: the evaluation rows of the run in `folder`.
struct EvalOptions : RowOptions {
  bool generate = false;  // answer the rows, too
  // Another model for the rows of `folder`, which are read as that one's; none: its own.
  std::optional<std::filesystem::path> weights;
  bool each_row = false;  // what the loss of each row is, one at a time
};

// A row's part of the loss, and of what that is divided by.
struct RowLoss {
  double sum = 0, count = 0;
};

// `rows` have a target, `skipped` ones none.
struct LossResult : RowTally {
  int64_t target_tokens = 0;  // that the loss is the mean of
  double loss = 0;            // per target token, or what the task counts; 0 where there is none
  std::string_view unit = "target tokens";  // that
  Metrics metrics = {};                     // of the task
  std::vector<RowLoss> each;                // with EvalOptions::each_row

  // exp(loss): about how many tokens the model hesitates between.
  [[nodiscard]] double perplexity() const;
};

struct Evaluation {
  LossResult loss;
  std::optional<AnswerTally> answers;  // with `generate`
  std::string device;                  // "the CPU", "NVIDIA H200"
};

// Throws DoesNotFitError before weights are read.
Evaluation evaluate(const EvalOptions& options);

}  // namespace plimsoll
