// Predicted seconds: a roofline per op over the device's rates.
#pragma once

#include <vector>

#include "plan/experiment.h"

namespace plimsoll {

// Seconds of one op by itself.
double op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates);

// Seconds of one optimizer step. Transfers run beside the computation.
double predict_step_seconds(const std::vector<Graph>& programs, const Variant& variant,
                            const DeviceRates& rates);

}  // namespace plimsoll
