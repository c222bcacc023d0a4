// A config.json as it stands.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace plimsoll {

// For parse_model_spec(). Throws as read_model_spec() does for what is no JSON, or not there.
nlohmann::json read_model_json(const std::filesystem::path& config_file);

}  // namespace plimsoll
