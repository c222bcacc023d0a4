#include "io/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "io/file.h"

namespace plimsoll {
namespace {

using nlohmann::json;

// Watches the parser and stops it at the first broken limit.
class LimitGuard {
 public:
  LimitGuard(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= limits_.max_depth)
      throw DamagedError(where_ + ": is nested deeper than " + std::to_string(limits_.max_depth) +
                         " levels.");
    if (limits_.unique_keys) track_keys(event, value);
    return true;
  }

 private:
  void track_keys(json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) open_objects_.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects_.pop_back();
    if (event == json::parse_event_t::key && !open_objects_.back().insert(value.get<std::string>()).second)
      throw DamagedError(where_ + ": names '" + value.get<std::string>() + "' twice.");
  }

  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> open_objects_;
};

// The library's text without its "[json.exception.parse_error.101] " head.
std::string reason_of(const json::exception& error) {
  const std::string_view text = error.what();
  const size_t head = text.find("] ");
  return std::string(head == std::string_view::npos ? text : text.substr(head + 2));
}

}  // namespace

json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  LimitGuard guard(where, limits);
  try {
    // By reference: the parser copies its callback.
    return json::parse(text.begin(), text.end(), [&guard](int depth, json::parse_event_t event, json& value) {
      return guard(depth, event, value);
    });
  } catch (const json::exception& error) {
    throw DamagedError(where + ": is not valid JSON: " + reason_of(error) + ".");
  }
}

json read_json(const std::filesystem::path& path, int64_t max_bytes, const JsonLimits& limits) {
  return parse_json(read_text(path, max_bytes), path.string(), limits);
}

std::string describe_kind(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

}  // namespace plimsoll
