// Describes this machine's CPU for planning.
#pragma once

#include "device/description.h"

namespace plimsoll {

// Rates are shipped ones, marked uncalibrated; scratch sizes are those of the kernels that will run.
DeviceDescription describe_cpu(Isa isa, int threads);

}  // namespace plimsoll
