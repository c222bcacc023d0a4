// JSON from files that people send us: bounded in size and depth before it can cost memory or stack.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct JsonLimits {
  int max_depth = 64;        // configs use 4; templates and tool schemas stay below 20
  bool unique_keys = false;  // refuse an object that names a key twice (JSON readers otherwise keep the last)
  // The next two are limits of parse_ordered_json and parse_members. A value takes up to 100 bytes of memory.
  int64_t max_values = std::numeric_limits<int64_t>::max();
  int64_t max_keys = 4096;  // of one object: keys that keep their order are looked up one by one
};

// Throws DamagedError that starts with `where` ("folder/config.json", "data.jsonl:14") and gives the reason.
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});
// With the keys of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where,
                                          const JsonLimits& limits = {});
// The members of an object that have these names, in the order of `names`; null for one that is missing.
// Other members take no memory, whatever they hold.
std::vector<nlohmann::ordered_json> parse_members(std::string_view text, std::span<const std::string> names,
                                                  const std::string& where, const JsonLimits& limits = {});

// Reads and parses a JSON file of at most `max_bytes`.
nlohmann::json read_json(const std::filesystem::path& path, int64_t max_bytes, const JsonLimits& limits = {});

// "a string", "an array", ...: what a value is, for messages.
std::string describe_kind(const nlohmann::json& value);
std::string describe_kind(const nlohmann::ordered_json& value);

}  // namespace plimsoll
