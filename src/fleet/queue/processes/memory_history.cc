#include "fleet/queue/processes/memory_history.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/json_text.h"
#include "base/units.h"
#include "files/atomic.h"

namespace plimsoll::queue {
namespace {

namespace fs = std::filesystem;

// A trend of equally distant values.
struct Trend {
  double slope = 0;  // by value
  double z = 0;
};

Trend trend_of(std::span<const int64_t> values) {
  const size_t n = values.size();
  std::vector<double> slopes;
  slopes.reserve(n * (n - 1) / 2);
  int64_t rises = 0;  // pairs that rise, less those that fall
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i + 1; j < n; ++j) {
      const int64_t difference = values[j] - values[i];
      rises += (difference > 0) - (difference < 0);
      slopes.push_back(static_cast<double>(difference) / static_cast<double>(j - i));
    }
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  // Kendall: the variance of `rises` among values in random order (without ties: with them it is smaller).
  const auto count = static_cast<double>(n);
  const double variance = count * (count - 1) * (2 * count + 5) / 18;
  return {*middle, static_cast<double>(rises) / std::sqrt(variance)};
}

}  // namespace

void MemoryHistory::halve() {
  for (size_t i = 0; 2 * i < bytes_.size(); ++i)
    bytes_[i] = 2 * i + 1 < bytes_.size() ? std::max(bytes_[2 * i], bytes_[2 * i + 1]) : bytes_[2 * i];
  bytes_.resize((bytes_.size() + 1) / 2);
  span_seconds_ *= 2;
}

void MemoryHistory::add(double seconds, int64_t bytes) {
  while (seconds / span_seconds_ >= static_cast<double>(kMostSpans)) halve();
  const auto span = static_cast<size_t>(std::max(0.0, seconds / span_seconds_));
  if (span < bytes_.size()) {
    bytes_.back() = std::max(bytes_.back(), bytes);
    return;
  }
  while (bytes_.size() < span) bytes_.push_back(bytes_.empty() ? bytes : bytes_.back());
  bytes_.push_back(bytes);
}

void keep(const MemoryHistory& history, const fs::path& folder) {
  const nlohmann::json root = {{"span_seconds", history.span_seconds()}, {"bytes", history.bytes()}};
  (void)replace_file(folder / "memory.json.tmp", folder / "memory.json", root.dump());
}

std::optional<MemoryHistory> kept_memory(const fs::path& folder) {
  std::ifstream in(folder / "memory.json", std::ios::binary);
  if (!in) return std::nullopt;
  const nlohmann::json root = read_json_text(in);
  if (!root.is_object() || !root.contains("span_seconds") || !root.contains("bytes")) return std::nullopt;
  try {
    constexpr double kLongest = 1e9;             // seconds
    constexpr int64_t kMost = int64_t{1} << 50;  // bytes: differences of two are whole numbers of a double
    std::vector<int64_t> bytes;
    for (const nlohmann::json& one : root["bytes"]) {
      const auto number = whole_number<int64_t>(one);
      if (!number || *number < 0 || *number > kMost) return std::nullopt;
      bytes.push_back(*number);
    }
    const auto span = bounded_number(root["span_seconds"], kLongest);
    if (!span || *span < 1e-3 || bytes.size() > MemoryHistory::kMostSpans) return std::nullopt;
    return MemoryHistory(*span, std::move(bytes));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<Growth> growth_of(const MemoryHistory& history) {
  constexpr size_t kLeastSpans = 32;
  constexpr double kLeastSeconds = 60;
  constexpr double kLeastZ = 4;
  const std::span<const int64_t> all = history.bytes();
  if (all.size() < kLeastSpans || static_cast<double>(all.size()) * history.span_seconds() < kLeastSeconds)
    return std::nullopt;
  const std::span<const int64_t> late = all.subspan(all.size() / 4);
  const Trend first = trend_of(late.first(late.size() / 2)), second = trend_of(late.subspan(late.size() / 2));
  const double z = std::min(first.z, second.z);
  if (z < kLeastZ || second.slope < first.slope / 3) return std::nullopt;
  const double slope = trend_of(late).slope;
  const double grown = slope * static_cast<double>(late.size() - 1);
  const int64_t now = late.back();
  if (grown < static_cast<double>(8 * kMiB) || grown < 0.02 * static_cast<double>(now)) return std::nullopt;
  return Growth{slope / history.span_seconds(), z, now};
}

double seconds_until(const Growth& growth, int64_t limit) {
  return std::max(0.0, static_cast<double>(limit - growth.now) / growth.bytes_per_second);
}

}  // namespace plimsoll::queue
