// Rates of a card: products, attention, what memory moves, and copies between the host and itself, each by
// the kernels that a run uses.
#pragma once

#include "device/description.h"
#include "outcome.h"
#include "runtime/device.h"

namespace plimsoll::gpu_check {

struct Measured {
  DeviceRates rates;
  double launch_seconds;  // of the host, for a call
};

// `own`, where there is one, computes products by the kernels here. `small`: sizes that an emulated card
// computes in seconds, whose rates say nothing.
Measured measure_rates(Device& device, Device* own, const CardFacts& card, bool small, const Tell& tell);

}  // namespace plimsoll::gpu_check
