// Prints `plimsoll recipe --explain`: every key with its default, its allowed values and its meaning.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace plimsoll {

// Aligned, grouped, within `columns`.
std::string explain_recipe(size_t columns = 100);
// A list of {key, default, values, meaning, required, support}.
nlohmann::ordered_json explain_recipe_json();

}  // namespace plimsoll
