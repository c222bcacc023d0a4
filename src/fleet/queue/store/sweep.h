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

// `zips` ("key=1,2") go in step with each other: their first values together, then their second ones. They
// are one more sweep, in front of the others. Every combination, the last sweep changing fastest. Commas
// within brackets, braces and quotes part nothing. Throws UsageError for what is no "key=value,value", a key
// or a value that is there twice, and too many points.
std::vector<SweepPoint> read_sweeps(const std::vector<std::string>& sweeps,
                                    const std::vector<std::string>& zips = {});

// `text` with "{key}" replaced by the point's value of that key, so that a path goes with a task:
// data.train=glue/{classify.glue}/train.parquet. Braces around anything else stay.
std::string with_values(const std::string& text, const SweepPoint& point);

}  // namespace plimsoll::queue
