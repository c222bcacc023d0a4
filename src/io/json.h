// JSON from files that people send us: bounded in size and depth before it can cost memory or stack.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace plimsoll {

struct JsonLimits {
  int max_depth = 64;        // configs use 4; templates and tool schemas stay below 20
  bool unique_keys = false;  // refuse an object that names a key twice (JSON readers otherwise keep the last)
};

// Throws DamagedError that starts with `where` ("folder/config.json", "data.jsonl:14") and gives the reason.
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});
// With the keys of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where,
                                          const JsonLimits& limits = {});

// Reads and parses a JSON file of at most `max_bytes`.
nlohmann::json read_json(const std::filesystem::path& path, int64_t max_bytes, const JsonLimits& limits = {});

// "a string", "an array", ...: what a value is, for messages.
std::string describe_kind(const nlohmann::json& value);
std::string describe_kind(const nlohmann::ordered_json& value);

}  // namespace plimsoll
