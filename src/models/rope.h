// Reads the rotary position embedding of a config.json.
#pragma once

#include "models/config_reader.h"
#include "models/spec.h"

namespace plimsoll {

// Sets spec.rope; reads head_dim and max_positions, which must be set. Throws UsageError.
void read_rope(const ConfigReader& in, ModelSpec& spec);

}  // namespace plimsoll
