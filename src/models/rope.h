// Reads the rotary position embedding of a config.json.
#pragma once

#include "models/config_reader.h"
#include "models/spec.h"

namespace plimsoll {

// Sets spec.rope, with the base `theta` where none is stated; reads head_dim and max_positions, which must be set.
// Throws UsageError.
void read_rope(const ConfigReader& in, double theta, ModelSpec& spec);

}  // namespace plimsoll
