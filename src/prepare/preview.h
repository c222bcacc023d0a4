// Shows the first rows of a recipe's data as the model sees them: the trained parts of each, and what was
// cut.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recipe/model_files.h"
#include "recipe/recipe.h"

namespace plimsoll {

// Tokens that stand together and are all trained, or none of them, as text.
struct PreviewPart {
  std::string text;
  bool learnt = false;
};

struct PreviewSequence {
  std::string name;  // "chosen", "source"; empty where a row is one sequence
  std::vector<PreviewPart> parts;
  int64_t tokens = 0, learnt = 0;  // that a run reads and learns
  int64_t cut_tokens = 0;
  std::string cut_text;  // what they stand for
};

struct PreviewRow {
  std::string where;                       // "data/train.jsonl:14"
  std::string problem;                     // why the row teaches nothing; empty where it does
  std::vector<PreviewSequence> sequences;  // none where it cannot be read
  std::string target;                      // the label or number of a row that is scored as a whole
};

struct Preview {
  std::vector<PreviewRow> rows;
  std::vector<std::string> rendering;  // how rows become text: the chat template
  bool learns_tokens = true;           // false: whole sequences are scored
};

// Reads no more of a text file than its first `count` rows need. `models`: of who read the recipe. Throws
// UsageError where the recipe names no rows, and whatever opening model and data throws.
Preview preview_rows(const Recipe& recipe, const std::shared_ptr<ModelFiles>& models, int64_t count);

}  // namespace plimsoll
