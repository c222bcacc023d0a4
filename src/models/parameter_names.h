// The names of a model's parameters, for code that needs none of its programs.
#pragma once

#include <string>
#include <vector>

#include "models/spec.h"

namespace plimsoll {

// In the order of the program; of a model that scores sequences those of its head as well.
std::vector<std::string> parameter_names(const ModelSpec& spec);

}  // namespace plimsoll
