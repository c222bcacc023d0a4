#include "fleet/queue/store/sweep.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/outer_split.h"

namespace plimsoll::queue {
namespace {

constexpr size_t kLongestSuffix = 80;  // with a name before it a folder's name stays below 255 bytes

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

Sweep read_sweep(const std::string& text, const std::string& option, bool once) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw UsageError(formatted("{}: expected KEY=VALUE,VALUE..., found '{}'", option, text));
  Sweep sweep{text.substr(0, equals), outer_split(text.substr(equals + 1), ",")};
  std::set<std::string> seen;
  for (const std::string& value : sweep.values) {
    if (value.empty())
      throw UsageError(
          formatted("{}: '{}' has an empty value; null takes a key back to its default", option, text));
    if (!seen.insert(value).second && once)
      throw UsageError(formatted("{}: '{}' has the value {} twice", option, text, value));
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

// All values of one key, or of several that go in step.
using Axis = std::vector<Sweep>;

Axis read_zips(const std::vector<std::string>& zips) {
  Axis axis;
  for (const std::string& text : zips) {
    axis.push_back(read_sweep(text, "--zip", false));
    const Sweep &first = axis.front(), &last = axis.back();
    if (first.values.size() != last.values.size())
      throw UsageError(formatted("--zip: {} has {} values and {} {}; what goes in step has as many",
                                 first.key, first.values.size(), last.key, last.values.size()));
  }
  if (axis.size() == 1)
    throw UsageError(
        formatted("--zip: {} goes in step with nothing; give another --zip, or --sweep", axis.front().key));
  return axis;
}

// A name of a run by all of its values in step would be long: the first value alone is taken, where it
// differs.
bool tells_apart(const Sweep& sweep) {
  return std::set<std::string>(sweep.values.begin(), sweep.values.end()).size() == sweep.values.size();
}

void cross(std::vector<SweepPoint>& points, const Axis& axis) {
  const size_t values = axis.front().values.size();
  if (points.size() * values > kMostPoints)
    throw UsageError(formatted("--sweep: more than {} runs", kMostPoints));
  std::vector<SweepPoint> next;
  for (const SweepPoint& point : points)
    for (size_t i = 0; i < values; ++i) {
      next.push_back(point);
      std::string& suffix = next.back().suffix;
      bool named = false;
      for (const Sweep& sweep : axis) {
        next.back().sets.push_back(formatted("{}={}", sweep.key, sweep.values[i]));
        if (!named) suffix += (suffix.empty() ? "" : "-") + label(sweep.key, sweep.values[i]);
        named |= tells_apart(sweep);
      }
    }
  points = std::move(next);
}

}  // namespace

std::vector<SweepPoint> read_sweeps(const std::vector<std::string>& sweeps,
                                    const std::vector<std::string>& zips) {
  std::vector<Axis> axes;
  if (!zips.empty()) axes.push_back(read_zips(zips));
  for (const std::string& text : sweeps) axes.push_back({read_sweep(text, "--sweep", true)});
  std::vector<SweepPoint> points(1);
  std::set<std::string> keys;
  for (const Axis& axis : axes) {
    for (const Sweep& sweep : axis)
      if (!keys.insert(sweep.key).second)
        throw UsageError(
            formatted("--sweep: {} is there twice; give its values in one: {}=1,2", sweep.key, sweep.key));
    cross(points, axis);
  }
  std::set<std::string> seen;
  const bool usable = std::all_of(points.begin(), points.end(), [&](const SweepPoint& point) {
    return point.suffix.size() <= kLongestSuffix && seen.insert(point.suffix).second;
  });
  for (size_t i = 0; i < points.size() && !usable; ++i) points[i].suffix = std::to_string(i + 1);
  return points;
}

std::string with_values(const std::string& text, const SweepPoint& point) {
  std::string result = text;
  for (const std::string& set : point.sets) {
    const size_t equals = set.find('=');
    const std::string mark = formatted("{{{}}}", set.substr(0, equals)), value = set.substr(equals + 1);
    for (size_t at = 0; (at = result.find(mark, at)) != std::string::npos; at += value.size())
      result.replace(at, mark.size(), value);
  }
  return result;
}

}  // namespace plimsoll::queue
