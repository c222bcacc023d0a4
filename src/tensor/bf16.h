// Converts between f32 and bf16, exact to the bit: narrowing rounds to nearest, ties to even; infinities
// stay; a NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace plimsoll {

constexpr float f32_from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16U); }

constexpr uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  constexpr uint32_t kInfinity = 0x7F80'0000U;
  // Rounding could carry a NaN's payload over into infinity: keep its upper half and set the quiet bit.
  if ((bits & 0x7FFF'FFFFU) > kInfinity) return static_cast<uint16_t>(bits >> 16U | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

}  // namespace plimsoll
