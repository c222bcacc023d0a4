// The bytes that several devices send each other, as planned.
#pragma once

#include <cstdint>

#include "plan/search/plan.h"

namespace plimsoll {

// Bytes that each of the plan's devices sends: gradients, and where the devices divide the optimizer's states the weights
// that each has updated.
struct SentBytes {
  int64_t in_step = 0;        // once
  int64_t in_micro_step = 0;  // of each: gradients and weights that the devices divide
  bool reduces_each = false;  // some of that is gradients
};
SentBytes sent_bytes(const Plan& plan);

}  // namespace plimsoll
