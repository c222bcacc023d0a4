// The cards of several ranks exchange through memory of the host, or by NCCL.
#pragma once

#include <cstdint>

namespace plimsoll {

enum class ExchangeWay : uint8_t { automatic, staged, nccl };

}  // namespace plimsoll
