#include "io/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "io/json_values.h"

namespace plimsoll {
namespace {

using nlohmann::json;

// Watches the parser and stops it at the first broken limit.
class LimitGuard {
 public:
  LimitGuard(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  template <class Json>
  bool operator()(int depth, typename Json::parse_event_t event, const Json& value) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= limits_.max_depth)
      throw DamagedError(where_ + ": is nested deeper than " + std::to_string(limits_.max_depth) +
                         " levels.");
    if (limits_.unique_keys) track_keys(event, value);
    return true;
  }

 private:
  template <class Json>
  void track_keys(typename Json::parse_event_t event, const Json& value) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start) open_objects_.emplace_back();
    if (event == Event::object_end) open_objects_.pop_back();
    if (event == Event::key && !open_objects_.back().insert(value.template get<std::string>()).second)
      throw DamagedError(where_ + ": names '" + value.template get<std::string>() + "' twice.");
  }

  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> open_objects_;
};

template <class Json>
Json parse(std::string_view text, const std::string& where, const JsonLimits& limits) {
  LimitGuard guard(where, limits);
  try {
    // By reference: the parser copies its callback.
    return Json::parse(text.begin(), text.end(),
                       [&guard](int depth, typename Json::parse_event_t event, Json& value) {
                         return guard(depth, event, value);
                       });
  } catch (const json::exception& error) {
    throw DamagedError(where + ": is not valid JSON: " + reason_of(error) + ".");
  }
}

std::string kind_name(json::value_t type) {
  switch (type) {
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

// At most `bytes` of the text, not ending within a character.
std::string_view first_bytes(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  while (bytes > 0 && continues(bytes)) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string reason_of(const json::exception& error) {
  constexpr size_t kMostBytes = 300;  // it quotes what was read last: a row may have megabytes
  const std::string_view text = error.what();
  const size_t head = text.find("] ");
  const std::string_view reason = head == std::string_view::npos ? text : text.substr(head + 2);
  const std::string_view shown = first_bytes(reason, kMostBytes);
  // Bytes that are no UTF-8, the commonest of reasons, would spoil the terminal and the log.
  std::string readable(shown);
  try {
    (void)json(readable).dump();
  } catch (const json::exception&) {
    for (char& c : readable)
      if (static_cast<unsigned char>(c) >= 0x80U) c = '?';
  }
  return shown.size() < reason.size() ? readable + "..." : readable;
}

json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  return parse<json>(text, where, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where,
                                          const JsonLimits& limits) {
  return parse<nlohmann::ordered_json>(text, where, limits);
}

json read_json(const std::filesystem::path& path, int64_t max_bytes, const JsonLimits& limits) {
  return parse_json(read_text(path, max_bytes), path.string(), limits);
}

std::string describe_kind(const json& value) { return kind_name(value.type()); }
std::string describe_kind(const nlohmann::ordered_json& value) { return kind_name(value.type()); }

}  // namespace plimsoll
