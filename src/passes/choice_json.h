// Choices of passes as the values of a recipe's keys.
#pragma once

#include <nlohmann/json.hpp>

#include "passes/offload.h"
#include "passes/recompute.h"

namespace plimsoll {

// The value of memory.offload_to.
nlohmann::ordered_json offload_targets_json(const OffloadTargets& targets);
// The value of memory.recompute.
nlohmann::ordered_json recompute_json(const RecomputeLevels& levels);

}  // namespace plimsoll
