#include "base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace plimsoll {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kPolynomial = 0x82F63B78U;  // Castagnoli's, bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

uint32_t by_table(std::span<const std::byte> bytes, uint32_t crc) {
  static constexpr auto kTable = crc_table();
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<uint32_t>(byte)) & 0xFF];
  return crc;
}

__attribute__((target("sse4.2"))) uint32_t by_instruction(std::span<const std::byte> bytes, uint32_t before) {
  uint64_t crc = before;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    crc = _mm_crc32_u64(crc, word);
    bytes = bytes.subspan(sizeof word);
  }
  return by_table(bytes, static_cast<uint32_t>(crc));
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  const uint32_t start = before ^ 0xFFFFFFFFU;
  return (has_instruction ? by_instruction(bytes, start) : by_table(bytes, start)) ^ 0xFFFFFFFFU;
}

}  // namespace plimsoll
