// All that the program prints passes here: names and texts of others must not steer a terminal.
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

// printable_text() to standard output. A failure is remembered for finish_output().
void print(std::string_view text);
// Hands out what print() has kept back.
void flush_output();
// JSON as it is printed: with a newline, and where a path is no UTF-8 with U+FFFD in its place.
template <class Json>
std::string json_text(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}
// At the end of every command: throws StoppedError where standard output took not all of it.
void finish_output();

// printable_text() and a newline to standard error, for notes; failures count for nothing.
void say(std::string_view text);

}  // namespace plimsoll
