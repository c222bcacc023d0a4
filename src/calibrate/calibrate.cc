#include "calibrate/calibrate.h"

#include "calibrate/measure.h"
#include "calibrate/probe.h"

namespace plimsoll {
namespace {

// Shares of the whole time, for the progress bar only.
constexpr double kMemoryEnd = 0.02, kDiskEnd = 0.06, kMatmulEnd = 0.55;

PartProgress part(const CalibrateOptions& options, double from, double to, const char* what) {
  return [&options, from, to, what](double share) { options.progress(from + (to - from) * share, what); };
}

}  // namespace

DeviceRates calibrate(const CalibrateOptions& options) {
  DeviceRates rates;
  options.progress(0, "memory");
  measure_memory(options, rates);
  options.progress(kMemoryEnd, "disk");
  measure_disk(options, rates);
  measure_matmuls(options, rates, part(options, kDiskEnd, kMatmulEnd, "matrix products"));
  rates.vector_bf16 = vector_rate(options.cpu, rates.matmul_bf16);
  measure_programs(options, rates, part(options, kMatmulEnd, 1.0, "other ops"));
  rates.calibrated = true;
  return rates;
}

}  // namespace plimsoll
