// The bytes that several devices send each other, as planned.
#pragma once

#include <cstdint>

#include "plan/search/plan.h"

namespace plimsoll {

// Bytes that each of the plan's devices sends in a step: gradients, and where the devices divide the optimizer's states
// the weights that each has updated.
int64_t sent_bytes(const Plan& plan);

}  // namespace plimsoll
