// Measured rates as JSON (docs/reference/devices.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "device/rates.h"

namespace plimsoll {

nlohmann::ordered_json rates_to_json(const DeviceRates& rates);
// Throws DamagedError that starts with `where` for what is missing, of another kind, or no measurement.
DeviceRates rates_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace plimsoll
