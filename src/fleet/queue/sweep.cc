#include "fleet/queue/sweep.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/outer_split.h"

namespace plimsoll::queue {
namespace {

constexpr size_t kLongestSuffix = 80;  // with a name before it a folder's name stays below 255 bytes

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

Sweep read_sweep(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError("--sweep: expected KEY=VALUE,VALUE..., found '" + text + "'");
  Sweep sweep{text.substr(0, equals), outer_split(text.substr(equals + 1), ",")};
  std::set<std::string> seen;
  for (const std::string& value : sweep.values) {
    if (value.empty())
      throw UsageError("--sweep: '" + text + "' has an empty value; null takes a key back to its default");
    if (!seen.insert(value).second)
      throw UsageError("--sweep: '" + text + "' has the value " + value + " twice");
  }
  return sweep;
}

// "method.r", "8": r8. What has no place in a folder's name becomes '_'.
std::string label(const std::string& key, const std::string& value) {
  std::string text = key.substr(key.rfind('.') + 1) + value;
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '+' && c != '-')
      c = '_';
  return text;
}

}  // namespace

std::vector<SweepPoint> read_sweeps(const std::vector<std::string>& sweeps) {
  std::vector<SweepPoint> points(1);
  std::set<std::string> keys;
  for (const std::string& text : sweeps) {
    const Sweep sweep = read_sweep(text);
    if (!keys.insert(sweep.key).second)
      throw UsageError("--sweep: " + sweep.key + " is there twice; give its values in one: " + sweep.key +
                       "=1,2");
    if (points.size() * sweep.values.size() > kMostPoints)
      throw UsageError("--sweep: more than " + std::to_string(kMostPoints) + " runs");
    std::vector<SweepPoint> next;
    for (const SweepPoint& point : points) {
      for (const std::string& value : sweep.values) {
        next.push_back(point);
        next.back().sets.push_back(sweep.key + "=" + value);
        next.back().suffix += (point.suffix.empty() ? "" : "-") + label(sweep.key, value);
      }
    }
    points = std::move(next);
  }
  std::set<std::string> seen;
  const bool usable = std::all_of(points.begin(), points.end(), [&](const SweepPoint& point) {
    return point.suffix.size() <= kLongestSuffix && seen.insert(point.suffix).second;
  });
  for (size_t i = 0; i < points.size() && !usable; ++i) points[i].suffix = std::to_string(i + 1);
  return points;
}

}  // namespace plimsoll::queue
