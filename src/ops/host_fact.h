// What a bound call decides by on the host before it launches anything: where that is the same, so is all
// that it launches.
#pragma once

#include <cstdint>
#include <functional>

namespace plimsoll {

using HostFact = std::function<int64_t()>;

}  // namespace plimsoll
