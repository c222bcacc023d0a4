// A measurement of half a second for a machine that has not been calibrated: one product of each type and one
// copy.
#pragma once

#include <string>

#include "base/units.h"
#include "calibrate/calibrate.h"

namespace plimsoll {

// Peak memory of a process that probes.
inline constexpr int64_t kProbeBytes = 192 * kMiB;

// `shipped` with its rates of products, memory and copies measured here. Takes about half a second; the
// threads of `settings` must have been started.
DeviceRates probe(const CpuSettings& settings, const DeviceRates& shipped);

// FLOP/s of a bf16 product in vectors: on machines whose products run in tiles it is measured, on others it
// is theirs.
double vector_rate(const CpuSettings& settings, double matmul_bf16);

// A share of this process's time that its threads were ready and other work ran in their place, 0 to 1: Linux
// counts it for each thread (schedstat). Stands for what was lost since the object was made.
class TimeLost {
 public:
  TimeLost();
  [[nodiscard]] double share() const;  // 0 where the kernel does not count

 private:
  double ran_ = 0, waited_ = 0;
};

// The note for a run of several threads that lost so large a share of time: threads wait for each other, so
// that one without time holds up all. "" where one thread would be no faster.
std::string crowded_note(double share, int threads);

// Rates that were measured while the machine was this busy describe the moment, not the machine.
inline constexpr double kBusy = 0.15;

}  // namespace plimsoll
