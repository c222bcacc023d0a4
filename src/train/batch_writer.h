// From the loader's micro-batch to a program's input tensors.
#pragma once

#include <span>
#include <vector>

#include "data/micro_batch.h"
#include "models/model.h"
#include "models/spec.h"
#include "ops/step_values.h"
#include "runtime/executor.h"

namespace plimsoll {

class BatchWriter {
 public:
  BatchWriter(const Executor& program, const ModelSpec& model);

  // Copies ids, positions and labels, or targets; fills samples, rotary frequencies, the live counts and,
  // where sequences are scored, the rows that are. Allocates nothing.
  void write(const MicroBatch& batch);
  void set(StepValue which, double value) { step_[static_cast<size_t>(which)] = value; }
  void set_seed(uint64_t seed);

 private:
  void write_scored_rows(const MicroBatch& batch);

  const ModelSpec& model_;
  std::span<int32_t> input_ids_, labels_, positions_, samples_, seq_starts_, last_rows_;
  std::span<float> targets_;
  std::span<float> inv_freq_;
  std::span<double> step_;
};

}  // namespace plimsoll
