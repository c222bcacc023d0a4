// What `plimsoll recipe --explain` prints: every key with its default, what is allowed and what it means.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace plimsoll {

// Aligned, grouped, within `columns`.
std::string explain_recipe(size_t columns = 100);
// A list of {key, default, values, meaning, required, support}.
nlohmann::ordered_json explain_recipe_json();

}  // namespace plimsoll
