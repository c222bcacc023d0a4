// Reduces values over the steps of a run to as many as a picture needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll {

// A run of steps that share one place in the picture. Least and largest are kept, so that no spike is lost.
struct CurvePoint {
  int64_t step = 0;  // the last of them
  double low = 0, high = 0, mean = 0;
};

// At most `most` points; values that are not finite are passed over, a place with none of them is left out.
// `steps` ascends.
std::vector<CurvePoint> make_curve(const std::vector<int64_t>& steps, const std::vector<double>& values,
                                   size_t most);

// Mean of each value and up to `reach` on either side, so that it does not lag behind a falling loss. Near
// the beginning the window stays symmetric by being smaller; near the end it is cut. Values that are not
// finite do not count.
std::vector<double> smoothed(const std::vector<double>& values, size_t reach);

struct Axis {
  int64_t first_step = 0, last_step = 1;
  double low = 0, high = 1;
  [[nodiscard]] double x(int64_t step) const;  // 0 to 1
  [[nodiscard]] double y(double value) const;  // 0 (bottom) to 1, clamped
};

// Data of an SVG path in a box of 1000 x 1000 units; each point gives its least and its largest value.
std::string path_of(const std::vector<CurvePoint>& curve, const Axis& axis);

}  // namespace plimsoll
