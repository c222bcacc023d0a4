// Writes the loader's micro-batch into a program's input tensors.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "data/batch/micro_batch.h"
#include "models/model.h"
#include "models/spec.h"
#include "ops/step_values.h"
#include "runtime/executor.h"

namespace plimsoll {

// The inputs of one token axis.
class AxisInputs {
 public:
  // `prefix`: of their names; empty of the first axis. `padding`: what an encoder does not count.
  AxisInputs(const Executor& program, const std::string& prefix, std::optional<int64_t> padding);

  struct Documents {
    size_t first = 0, every = 1;                            // documents first, first + every, ...
    int32_t without_last = 0;                               // tokens at the end of each that are left out
    std::optional<int32_t> start = std::nullopt;            // that each begins with, instead of its last one
    int32_t at_most = std::numeric_limits<int32_t>::max();  // tokens of each
  };
  struct Live {
    int64_t tokens = 0, sequences = 0;
  };
  // Copies ids, labels where there are some, positions and samples of these documents; what is behind them is
  // as MicroBatch has it. Allocates nothing.
  Live write(const MicroBatch& batch, const Documents& which);
  // True if its sequences share a prefix.
  [[nodiscard]] bool shares() const { return !parents_.empty(); }
  // The same of the segments of a tree. Random draws of tokens are keyed by the tokens before them, since
  // they are of no one sample.
  Live write(const MicroBatch& batch, const PrefixTree& tree);

 private:
  void clear();
  void write_labels(const MicroBatch& batch, const PrefixTree& tree);
  // Positions of an encoder that begins behind its padding and does not count it.
  void count_positions(std::span<const int32_t> ids, std::span<int32_t> to) const;

  // The last two are of an encoder that scores: 0 for a first text and 1 for a second, and positions as it
  // counts.
  std::span<int32_t> input_ids_, labels_, positions_, samples_, seq_starts_, token_types_, position_ids_;
  std::span<int32_t> row_lengths_;  // of each token's sequence, where noise goes by it
  // For segments: the segment that each continues; for each label the row that it reads, and for how many
  // sequences it counts or whose it is.
  std::span<int32_t> parents_, label_rows_, label_sequences_;
  std::span<float> label_weights_;
  int32_t padding_ = -1;
};

class BatchWriter {
 public:
  BatchWriter(const Executor& program, const ModelSpec& model);

  // Fills the inputs of every axis, rotary frequencies, numbers of sequences, the live counts and, where
  // sequences are scored, the rows that are. For an encoder and a decoder, documents are sources and targets
  // in turn; where they are scored, both read each, or the decoder its start token alone where words are
  // scores. Allocates nothing.
  void write(const MicroBatch& batch);
  void set(StepValue which, double value) { step_[static_cast<size_t>(which)] = value; }
  void set_seed(uint64_t seed);

 private:
  // Returns true if scores are those of the first token that a decoder would write.
  [[nodiscard]] bool begins_to_write() const { return decoder_ && !model_.words.empty(); }
  void write_scored_rows(const MicroBatch& batch);
  void write_frequencies(const MicroBatch& batch, const RopeSpec& rope, std::span<float> out);
  void set_live(AxisId axis, const AxisInputs::Live& live);

  const ModelSpec& model_;
  AxisInputs first_;
  std::optional<AxisInputs> decoder_;
  std::span<int32_t> scored_rows_, scored_samples_, scored_positions_, scored_starts_;
  std::span<float> targets_;
  std::vector<std::span<float>>
      inv_freq_;  // of rope, then of each of other_ropes; empty where the program has none
  std::span<double> step_;
};

}  // namespace plimsoll
