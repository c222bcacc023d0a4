// The keys of a recipe that state what the planner chose: stated, they lead to the same layout.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "plan/search/plan.h"

namespace plimsoll {

// By key, as a recipe writes them.
nlohmann::ordered_json variant_keys(const Plan& plan);
// "--set batch.micro=2 --set 'memory.offload_to={states: host}'", to paste.
std::string variant_keys_text(const Plan& plan);

}  // namespace plimsoll
