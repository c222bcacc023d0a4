#include "base/log_level.h"

#include <array>
#include <string>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {

LogLevel parse_log_level(std::string_view word) {
  constexpr std::array<std::string_view, 4> kWords = {"error", "warn", "info", "debug"};
  for (size_t i = 0; i < kWords.size(); ++i)
    if (word == kWords[i]) return static_cast<LogLevel>(i);
  throw UsageError(formatted("--log-level: '{}' is not one of error, warn, info, debug", word));
}

}  // namespace plimsoll
