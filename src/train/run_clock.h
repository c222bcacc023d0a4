// The clock of a run: steady, so that times do not jump with the system's.
#pragma once

#include <chrono>

namespace plimsoll {

using RunClock = std::chrono::steady_clock;
inline double seconds_since(RunClock::time_point start) {
  return std::chrono::duration<double>(RunClock::now() - start).count();
}

}  // namespace plimsoll
