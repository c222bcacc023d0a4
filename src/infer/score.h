// `plimsoll score` and `plimsoll classify`: a reward model's or a classifier's scores of rows or texts.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "infer/row_program.h"

namespace plimsoll {

// Rows of `data`, or texts.
struct ScoreOptions : RowOptions {
  bool rewards = false;                // of a reward model; else a classifier
  std::vector<std::string> texts;      // answers of a reward model
  std::optional<std::string> partner;  // the prompt before each of them; of a classifier the second text
};

// Makes a line of each row (ScoreLines), in their order, and writes it to `options.out`, or hands it out
// where no file is named. Throws UsageError for a model whose head scores nothing, DoesNotFitError before
// weights are read; the file is opened after that.
RowTally score(const ScoreOptions& options, const std::function<void(const nlohmann::ordered_json&)>& line);

}  // namespace plimsoll
