// `--sweep key=1,2,3`: the grid of what several of them ask for.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::queue {

struct SweepPoint {
  std::vector<std::string> sets;  // "key=value", in the order of the sweeps
  std::string suffix;             // "r8-lr1e-4": for names of entries and folders; different for each point
};

inline constexpr size_t kMostPoints = 1000;

// Every combination, the last sweep changing fastest. Commas within brackets, braces and quotes part nothing.
// Throws UsageError for what is no "key=value,value", a key or a value that is there twice, and too many
// points.
std::vector<SweepPoint> read_sweeps(const std::vector<std::string>& sweeps);

}  // namespace plimsoll::queue
