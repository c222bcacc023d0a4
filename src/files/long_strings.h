// Parses JSON with long texts in it without the copies that the library makes of them: of a text of 20 MB it holds what it
// has read, twice, in buffers that double.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace plimsoll {

// The handler gets, to the letter, what Json::sax_parse(text) gives it.
void parse_sparingly(std::string_view text, nlohmann::json_sax<nlohmann::json>& handler);
void parse_sparingly(std::string_view text, nlohmann::json_sax<nlohmann::ordered_json>& handler);

// Strings from this size on are long: a handler takes them over rather than copy them.
inline constexpr size_t kLongString = size_t{64} << 10;

}  // namespace plimsoll
