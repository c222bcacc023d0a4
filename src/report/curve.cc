#include "report/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "base/page.h"

namespace plimsoll {

std::vector<CurvePoint> make_curve(const std::vector<int64_t>& steps, const std::vector<double>& values,
                                   size_t most) {
  std::vector<CurvePoint> curve;
  const size_t each = std::max<size_t>(1, (steps.size() + most - 1) / most);
  for (size_t first = 0; first < steps.size(); first += each) {
    CurvePoint point{0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0};
    int count = 0;
    for (size_t i = first; i < std::min(first + each, steps.size()); ++i) {
      if (!std::isfinite(values[i])) continue;
      point.step = steps[i];
      point.low = std::min(point.low, values[i]);
      point.high = std::max(point.high, values[i]);
      point.mean += values[i];
      ++count;
    }
    if (count == 0) continue;
    point.mean /= count;
    curve.push_back(point);
  }
  return curve;
}

std::vector<double> smoothed(const std::vector<double>& values, size_t reach) {
  struct Sum {
    double value = 0, count = 0;
  };
  std::vector<Sum> before = {{}};  // of all values before each one
  for (const double value : values) {
    const Sum& last = before.back();
    before.push_back(std::isfinite(value) ? Sum{last.value + value, last.count + 1} : last);
  }
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t half = std::min(reach, i);
    const Sum& begin = before[i - half];
    const Sum& end = before[std::min(i + half + 1, values.size())];
    const double count = end.count - begin.count;
    out.push_back(count > 0 ? (end.value - begin.value) / count : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

double Axis::x(int64_t step) const {
  if (first_step == last_step) return 0.5;
  return static_cast<double>(step - first_step) / static_cast<double>(last_step - first_step);
}

double Axis::y(double value) const { return std::clamp((value - low) / (high - low), 0.0, 1.0); }

std::string path_of(const std::vector<CurvePoint>& curve, const Axis& axis) {
  constexpr double kBox = 1000.0;
  std::string path;
  for (const CurvePoint& point : curve) {
    const std::string x = page::number(axis.x(point.step) * kBox);
    path += formatted("{}{} {}", path.empty() ? "M" : "L", x, page::number((1 - axis.y(point.low)) * kBox));
    if (point.high > point.low) path += "V" + page::number((1 - axis.y(point.high)) * kBox);
  }
  return path;
}

}  // namespace plimsoll
