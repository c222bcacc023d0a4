#include "base/units.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
std::string format_number(const char* format, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::fabs(value) >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return std::to_string(bytes) + " B";
  const double magnitude = std::fabs(value);
  const char* format = magnitude < 9.995 ? "%.2f" : magnitude < 99.95 ? "%.1f" : "%.0f";
  return formatted("{} {}", format_number(format, value), kUnits[unit]);
}

std::string format_bytes_up(int64_t bytes) {
  std::string text = format_bytes(bytes);
  // A unit in the last digit is at most a hundredth of the number that is shown.
  for (int64_t more = bytes; parse_bytes(text, "") < bytes; text = format_bytes(more)) more += bytes / 1000;
  return text;
}

std::string format_gib(int64_t bytes) {
  return format_number("%.2f", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

std::string format_count(int64_t value) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return value < 0 ? "-" + digits : digits;
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return format_number("%.0f us", seconds * 1e6);
  if (seconds < 1.0) return format_number("%.0f ms", seconds * 1e3);
  if (seconds < 10.0) return format_number("%.2f s", seconds);
  if (seconds < 120.0) return format_number("%.0f s", seconds);
  const auto total = static_cast<int64_t>(std::llround(seconds));
  std::array<char, 64> buffer{};
  const auto hours = static_cast<long long>(total / 3600);
  const auto minutes = static_cast<long long>(total / 60 % 60);
  const auto rest = static_cast<long long>(total % 60);
  if (hours > 0) {
    std::snprintf(buffer.data(), buffer.size(), "%lld:%02lld:%02lld", hours, minutes, rest);
  } else {
    std::snprintf(buffer.data(), buffer.size(), "%lld:%02lld", minutes, rest);
  }
  return buffer.data();
}

std::string format_blocks(const std::vector<double>& shares) {
  constexpr std::array<const char*, 8> kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const double share : shares)
    text += kHeights[static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 7))];
  return text;
}

int64_t parse_bytes(std::string_view text, std::string_view what) {
  const std::string input(text);
  char* end = nullptr;
  const double number = std::strtod(input.c_str(), &end);
  std::string unit;
  for (const char* at = end; *at != '\0'; ++at) {
    if (std::isspace(static_cast<unsigned char>(*at)) == 0)
      unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(*at))));
  }
  double scale = -1.0;
  if (unit.empty() || unit == "b") scale = 1.0;
  if (unit == "k" || unit == "kib") scale = 1024.0;
  if (unit == "m" || unit == "mib") scale = 1048576.0;
  if (unit == "g" || unit == "gib") scale = 1073741824.0;
  if (unit == "t" || unit == "tib") scale = 1099511627776.0;
  if (unit == "kb") scale = 1e3;
  if (unit == "mb") scale = 1e6;
  if (unit == "gb") scale = 1e9;
  if (unit == "tb") scale = 1e12;
  const double bytes = number * scale;
  if (end == input.c_str() || scale < 0.0 || !(number >= 0.0) || bytes > 9e18) {
    throw UsageError(formatted("{}: '{}' is not a size; write it as 8GiB, 512MiB or 8GB", what, input));
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace plimsoll
