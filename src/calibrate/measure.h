// The parts of a calibration. Each fills its rates; times are the least of several, since whatever else runs
// on the machine only ever adds.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

#include "calibrate/calibrate.h"

namespace plimsoll {

// Called with a part's own progress, 0 to 1.
using PartProgress = std::function<void(double share)>;

void measure_memory(const CalibrateOptions& options, DeviceRates& rates);
void measure_disk(const CalibrateOptions& options, DeviceRates& rates);
void measure_matmuls(const CalibrateOptions& options, DeviceRates& rates, const PartProgress& progress);
// Every other op, in real programs of small models. Needs the matmuls: what they take is subtracted.
void measure_programs(const CalibrateOptions& options, DeviceRates& rates, const PartProgress& progress);

template <class F>
double seconds_of(F&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The least of at least `times` runs that together take `seconds` or more.
template <class F>
double least_seconds(int times, double seconds, F&& work) {
  double least = std::numeric_limits<double>::max();
  double sum = 0;
  for (int i = 0; i < times || sum < seconds; ++i) {
    const double taken = seconds_of(work);
    least = std::min(least, taken);
    sum += std::max(taken, 1e-7);
  }
  return least;
}

}  // namespace plimsoll
