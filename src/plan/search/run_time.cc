#include "plan/search/run_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "base/units.h"

namespace plimsoll {
namespace {

std::string printed(const char* format, double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

// "2 days 4 h"; the second one only where it is not 0.
std::string two_units(double seconds, double large, const char* first, double small, const char* second) {
  const auto count = static_cast<int64_t>(std::llround(seconds / small));
  const auto ratio = static_cast<int64_t>(large / small);
  const int64_t whole = count / ratio;
  return format_count(whole) + first + (count % ratio == 0 ? "" : formatted(" {}{}", count % ratio, second));
}

constexpr double kMinute = 60;
constexpr double kHour = 3600;
constexpr double kDay = 86400;
constexpr double kYear = 365 * kDay;

}  // namespace

std::string tenths(double value) { return printed("%.1f", value); }

std::string duration_words(double seconds) {
  if (!(seconds < 1000 * kYear)) return "more than 1,000 years";
  if (seconds < 120) return format_seconds(seconds);
  if (seconds < 10 * kMinute) return two_units(seconds, kMinute, " min", 1, " s");
  if (seconds < 119.5 * kMinute) return format_count(std::llround(seconds / kMinute)) + " min";
  if (seconds < 47.9 * kHour) return two_units(seconds, kHour, " h", kMinute, " min");
  if (seconds < 14 * kDay) return two_units(seconds, kDay, " days", kHour, " h");
  if (seconds < 2 * kYear) return format_count(std::llround(seconds / kDay)) + " days";
  return tenths(seconds / kYear) + " years";
}

std::string speed_words(double tokens_per_second) {
  if (tokens_per_second >= 9.95) return format_count(std::llround(tokens_per_second)) + " tokens/s";
  if (tokens_per_second >= 1.95) return tenths(tokens_per_second) + " tokens/s";
  return duration_words(1.0 / tokens_per_second) + " a token";
}

std::string run_words(const Plan& plan) {
  constexpr int64_t kThousand = 1000;
  const auto& run = plan.request.workload.run;
  if (!run)
    return formatted("1,000 steps take about {} (the recipe names neither rows nor steps)",
                     duration_words(kThousand * plan.seconds_per_step));
  std::string text = formatted("{}{}{} in about {}", run->estimated ? "about " : "", format_count(run->steps),
                               run->steps == 1 ? " step" : " steps", duration_words(plan.run_seconds()));
  const bool is_whole = std::floor(run->epochs) == run->epochs;
  if (run->epochs > 0 && plan.request.workload.data)
    text += formatted(" ({}{}{} {})",
                      is_whole ? format_count(std::llround(run->epochs)) : format_number("%.6g", run->epochs),
                      run->epochs == 1 ? " epoch of " : " epochs of ",
                      format_count(plan.request.workload.data->rows),
                      plan.request.workload.data->rows == 1 ? "row" : "rows");
  return text;
}

}  // namespace plimsoll
