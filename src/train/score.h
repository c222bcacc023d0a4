// `plimsoll score` and `plimsoll classify`: what a reward model or a classifier says of rows or texts.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/row_program.h"

namespace plimsoll {

// Rows of `data`, or texts.
struct ScoreOptions : RowOptions {
  bool rewards = false;                // of a reward model; else a classifier
  std::vector<std::string> texts;      // answers of a reward model
  std::optional<std::string> partner;  // the prompt before each of them; of a classifier the second text
};

struct ScoreTally {
  int64_t rows = 0;       // scored
  int64_t skipped = 0;    // too long, where the recipe drops such rows
  int64_t damaged = 0;    // that could not be read, with data.on_error: skip
  int64_t truncated = 0;  // longer than max_length
  int64_t tokens = 0;
  double seconds = 0;
};

// Hands out a line for each row (ScoreLines), in their order. Throws UsageError for a model whose head
// scores nothing, DoesNotFitError before weights are read.
ScoreTally score(const ScoreOptions& options, const std::function<void(const nlohmann::ordered_json&)>& line);

}  // namespace plimsoll
