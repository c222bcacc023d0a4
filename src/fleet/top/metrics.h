// Prints a frame as metrics for Prometheus.
#pragma once

#include <string>

#include "fleet/top/frame.h"

namespace plimsoll::top {

// Text exposition format, version 0.0.4: gauges named plimsoll_*, in bytes and seconds. Unknown values are
// absent.
std::string metrics_text(const Frame& frame);

}  // namespace plimsoll::top
