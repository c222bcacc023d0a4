// Words that an encoder is to guess: which are drawn of a row, and what is shown instead.
#pragma once

#include <cstdint>

#include "data/encode/example.h"

namespace plimsoll {

// As transformers' DataCollatorForLanguageModeling has them.
struct MaskRules {
  double probability = 0.15;  // that a token is drawn
  double mask = 0.8;          // of those that are drawn: that the mask is shown
  double random = 0.1;        // and that any word is; the others are shown as they are
  int32_t mask_token = 0;
  int64_t vocab_size = 0;  // words are ids below it
  uint64_t seed = 0;
};

// A row as an epoch reads it.
struct RowVisit {
  int64_t row = 0;  // its number in the data set
  int64_t epoch = 0;
};

// Draws among the candidates of an example: labels of the others become kIgnoreLabel. What is drawn follows from seed,
// row, epoch and the token's place alone, so that no split of the work changes it and a resumed run draws the same.
void draw_masks(const MaskRules& rules, const RowVisit& visit, Example& example);

}  // namespace plimsoll
