// What kernels read on the device of how much there is: grids depend on planned sizes, and blocks look here
// whether they have something to do.
#pragma once

#include "ops/gpu_dispatch.h"

namespace plimsoll {

// How many of the planned rows count: those that carry tokens, or what is left of a list behind `begin`.
struct LiveRows {
  const double* step = nullptr;  // neither: all rows
  StepValue which = StepValue::live_tokens;
  const int32_t* listed = nullptr;
  int64_t begin = 0;

  [[nodiscard]] PL_DEV int64_t of(int64_t planned) const {
    if (step != nullptr) return static_cast<int64_t>(step_value(step, which));
    if (listed == nullptr) return planned;
    const int64_t left = *listed - begin;
    return left < 0 ? 0 : left < planned ? left : planned;
  }
};

// Whether a sum is added to what is there: always, unless an op's attribute `accumulate` makes it the first
// writer.
struct Accumulation {
  int64_t accumulate = 1;
  const double* step = nullptr;

  [[nodiscard]] PL_DEV bool adds() const { return !overwrites_gradient(accumulate, step); }
};

}  // namespace plimsoll
