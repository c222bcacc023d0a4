// The sequences of samples that are scored or compared as wholes.
#pragma once

#include "data/encode/cut.h"
#include "data/encode/row_encoder.h"

namespace plimsoll {

struct SequenceRules {
  CutRule cut;
  int64_t vocab_size = 0;
  std::optional<int32_t> padding = {}, scored_end = {};  // as in ModelTokens
  bool labelled = false;                                 // labels are kept
};
// Cuts the sequence and adds it to the sample. False where it is left out.
bool append_sequence(const SequenceRules& rules, Example one, const Where& where, Example& example);

// Fills in placeholders for the numbers that the loss would read, where the scores are not trained.
void expect_nothing(int64_t values, Example& example);

}  // namespace plimsoll
