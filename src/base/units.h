// Sizes and counts as people read and write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// Smallest multiple of `alignment` (> 0) that is not below `value` (>= 0).
constexpr int64_t round_up(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr int64_t ceil_div(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// "6.41 GiB", "38.2 MiB", "512 B": three significant digits, binary units.
std::string format_bytes(int64_t bytes);
// The same, never less than there are: a need that will do as a budget.
std::string format_bytes_up(int64_t bytes);
// "6.41": the number in GiB with two decimals, for table columns headed GiB.
std::string format_gib(int64_t bytes);
// "1,234,567"
std::string format_count(int64_t value);
// "1.31 s", "42 ms", "9:12" (minutes:seconds from two minutes on), "3:05:10".
std::string format_seconds(double seconds);

// "▁▃▆█": a block for each value, from none at 0 or less to a whole one at 1 or more.
std::string format_blocks(const std::vector<double>& shares);

// As printf writes it.
std::string format_number(const char* format, double value);

// Reads "8GiB", "8GB", "512MiB", "1024" (bytes). Decimal units are powers of 1000. Throws UsageError naming
// `what` when the text is no size.
int64_t parse_bytes(std::string_view text, std::string_view what);

}  // namespace plimsoll
