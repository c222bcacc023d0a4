// The scale that keeps gradients in f16 from vanishing: the loss is multiplied by it, the update divides by
// it. It grows while nothing overflows and halves where something did, as PyTorch's GradScaler has it, with
// its numbers.
#pragma once

#include <cstdint>

namespace plimsoll {

struct LossScale {
  double value = 65536;
  int64_t good_steps = 0;     // in a row at this value
  int64_t skipped_steps = 0;  // of the run: their gradients overflowed, nothing was updated

  // Skipped steps left the weights as they were wherever those live. False of a run that skipped steps under
  // an earlier version, which stored what was never fetched over weights on the host or on disk.
  bool skips_keep_weights = true;

  static constexpr int64_t kGrowthInterval = 2000;
  // With a smaller scale no gradient of a model that trains overflows.
  static constexpr double kLeast = 0x1p-14;

  // After a step.
  constexpr void take(bool overflowed) {
    if (overflowed) {
      value /= 2;
      good_steps = 0;
      ++skipped_steps;
    } else if (++good_steps == kGrowthInterval) {
      value *= 2;
      good_steps = 0;
    }
  }
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

}  // namespace plimsoll
