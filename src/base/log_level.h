// The levels of what a command writes to standard error.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

// Each level includes those before it.
enum class LogLevel : uint8_t {
  error,  // what ended the command
  warn,   // what the user may not expect
  info,   // how it goes
  debug   // numbers behind it
};

// Throws UsageError for another word.
LogLevel parse_log_level(std::string_view word);

}  // namespace plimsoll
