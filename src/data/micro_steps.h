// An effective batch cut into micro-steps, in rows or in tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "data/effective_batch.h"
#include "data/micro_batch.h"

namespace plimsoll {

// All storage is allocated by the constructor.
class MicroSteps {
 public:
  // Of batches of `sequences` at most.
  MicroSteps(const MicroRoom& room, const SequenceShape& shape, int64_t sequences);

  // `batch` must stay as it is until the next call.
  void cut(const EffectiveBatch& batch);
  [[nodiscard]] int64_t count() const { return count_; }
  // Its rows in the order in which they came. Valid until the next call.
  const MicroBatch& fill(int64_t step);

 private:
  MicroRoom room_;
  bool shares_;  // what sequences begin with alike
  MicroPacker packer_;
  MicroBatch batch_;
  const EffectiveBatch* of_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace plimsoll
