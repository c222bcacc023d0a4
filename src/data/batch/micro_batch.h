// The inputs of one micro-step: several sequences on one flat token axis.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/batch/packer.h"
#include "data/batch/prefix_tree.h"
#include "tasks/micro_capacity.h"

namespace plimsoll {

// T is the capacity of the token axis: sequences x longest allowed length, or the tokens that there is room
// for. B is the capacity in documents: one for each sequence, or several with packing. Both are shapes of the
// program, which knows documents alone, as sequences of their own. The live part of them varies from step to
// step and is counted separately. All storage is allocated by the constructor.
class MicroBatch {
 public:
  MicroBatch(const MicroCapacity& capacity, const SequenceShape& shape);
  MicroBatch(int64_t sequences, const SequenceShape& shape) : MicroBatch(MicroCapacity{sequences}, shape) {}
  MicroBatch(int64_t sequences, int64_t max_length) : MicroBatch(sequences, SequenceShape{max_length, 1}) {}

  std::vector<int32_t> input_ids;  // [T] 0 beyond the live tokens
  std::vector<int32_t>
      labels;  // [T] the next token of the sequence, or SequenceShape::labels_in_place; or kIgnoreLabel
  std::vector<int32_t> positions;        // [T] within the sequence, 0 beyond the live tokens
  std::vector<int32_t> seq_starts;       // [B+1] of live sequences; then live_tokens
  std::vector<int32_t> sample_in_batch;  // [B] number within the effective batch; 0 beyond the live sequences
  std::vector<int32_t> seconds;  // [B] where in a sequence a second text begins, of token type 1; -1: nowhere
  std::vector<int32_t> row_lengths;  // [T] SequenceShape::longest_alike; empty without it
  std::vector<float> targets;        // [B, ..] numbers that came with the sequence; 0 beyond the live ones
  // The tree of what its sequences share at their beginnings, where they do and build_tree() was called.
  std::optional<PrefixTree> tree;
  int64_t live_tokens = 0;
  int64_t live_sequences = 0;  // documents
  int64_t target_tokens = 0;

  // Forgets all sequences; every array is as described for no live token.
  void clear();
  // Appends a sequence with labels aligned to its ids, which are shifted by one here unless they stay in place.
  // InternalError when it does not fit.
  void append(std::span<const int32_t> ids, std::span<const int32_t> aligned_labels, int32_t sample,
              std::span<const float> its_targets = {}, int32_t second = -1);
  // Builds the tree of the appended sequences; nothing where they share no beginning.
  void build_tree();
  // Heap bytes of the arrays.
  [[nodiscard]] int64_t bytes() const;

 private:
  SharedLabels labels_of_ = SharedLabels::weighed;
  int64_t shift_ = 1;  // of labels
};

}  // namespace plimsoll
