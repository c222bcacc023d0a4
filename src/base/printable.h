// Makes names and texts of others safe to print: they must not steer a terminal.
#pragma once

#include <string>
#include <string_view>

namespace plimsoll {

// A foreign name on one line: control characters, line breaks among them, and what changes the direction of
// the text around it become escapes as in JSON (\n, \u001b, \u202e), bytes that are no UTF-8 become \xff.
// Everything else stays.
std::string printable(std::string_view name);
// The same of a text of several lines: line feeds (with a carriage return before them or not) and tabs stay.
// JSON keeps its meaning.
std::string printable_text(std::string_view text);

// JSON as it is printed: with a newline, and where a path is no UTF-8 with U+FFFD in its place.
template <class Json>
std::string json_text(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
