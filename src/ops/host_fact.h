// Values by which a bound call decides on the host before it launches anything: where they are the same, so
// is all that it launches.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll {

using HostFact = std::function<int64_t()>;

}  // namespace plimsoll
