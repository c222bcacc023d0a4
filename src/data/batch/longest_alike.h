// Gives tokens that sequences share one length for all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batch/effective_batch.h"

namespace plimsoll {

// A value that depends on the length of a token's sequence (NEFTune's noise) has to be the same in all
// sequences that begin alike up to the token, whichever of them share a micro-step. So it is computed from
// the length of the longest such sequence in the effective batch. Behind the last token that a sequence
// shares, that is the sequence's own length.
//
// All storage is allocated by the constructor.
class LongestAlike {
 public:
  // For batches of at most so many documents, with at most so many tokens together.
  LongestAlike(int64_t documents, int64_t tokens);

  // `batch` must stay as it is.
  void set(const EffectiveBatch& batch);
  // The length for each token of a document, in its order.
  [[nodiscard]] std::span<const int32_t> of(int64_t document) const;
  static int64_t planned_bytes(int64_t documents, int64_t tokens);

 private:
  void measure(size_t place);

  const EffectiveBatch* of_ = nullptr;
  std::vector<int32_t> sorted_;  // documents by their tokens
  std::vector<size_t> common_;   // of each in sorted order, with the one before it
  std::vector<size_t> starts_;
  std::vector<int32_t> lengths_;
};

}  // namespace plimsoll
