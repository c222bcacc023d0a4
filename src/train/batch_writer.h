// From the loader's micro-batch to a program's input tensors.
#pragma once

#include <span>
#include <vector>

#include "data/micro_batch.h"
#include "models/spec.h"
#include "ops/step_values.h"
#include "runtime/executor.h"

namespace plimsoll {

class BatchWriter {
 public:
  BatchWriter(const Executor& program, const ModelSpec& model);

  // Copies ids, positions and labels, fills samples and rotary frequencies and the live counts. Allocates
  // nothing.
  void write(const MicroBatch& batch);
  void set(StepValue which, double value) { step_[static_cast<size_t>(which)] = value; }
  void set_seed(uint64_t seed);

 private:
  const ModelSpec& model_;
  std::span<int32_t> input_ids_, labels_, positions_, samples_, seq_starts_;
  std::span<float> inv_freq_;
  std::span<double> step_;
};

}  // namespace plimsoll
