#include <cstring>

#include "base/units.h"
#include "calibrate/measure.h"
#include "ops/parallel_memory.h"
#include "runtime/arena.h"

namespace plimsoll {

void measure_memory(const CalibrateOptions& options, DeviceRates& rates) {
  const int threads = options.cpu.threads;
  const int64_t half = (options.quick ? 64 : 256) * kMiB;  // beyond any cache
  const int times = options.quick ? 2 : 5;
  const auto bytes = static_cast<double>(half);
  std::unique_ptr<Arena> arena;
  rates.page_touch = 2 * bytes / seconds_of([&] { arena = std::make_unique<Arena>(2 * half, threads); });
  std::byte* const from = arena->data();
  std::byte* const to = from + half;
  rates.bandwidth = 2 * bytes / least_seconds(times, 0, [&] { parallel_copy(to, from, half, threads); });
  rates.host_copy =
      bytes / least_seconds(times, 0, [&] { std::memcpy(to, from, static_cast<size_t>(half)); });
}

}  // namespace plimsoll
