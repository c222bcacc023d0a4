// Converts between f32 and f16, exact to the bit: narrowing rounds to nearest, ties to even, beyond 65,504 to
// infinity; a NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace plimsoll {

// A number in f16 where a type has to tell it from bf16.
struct F16 {
  uint16_t bits = 0;
};

// f16 has 5 exponent bits (bias 15) and 10 of mantissa; f32 8 (bias 127) and 23.
inline constexpr uint32_t kF16MantissaShift = 13;
inline constexpr uint32_t kF16BiasDifference = 127 - 15;

constexpr float f32_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16U;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN: all exponent bits set, payload moved up
    const uint32_t quiet = magnitude > 0x7C00U ? 0x0040'0000U : 0U;
    return std::bit_cast<float>(sign | 0x7F80'0000U | magnitude << kF16MantissaShift | quiet);
  }
  if (magnitude < 0x0400U) {  // zero or subnormal: a multiple of 2^-24, exact in f32
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << kF16MantissaShift) + (kF16BiasDifference << 23U)));
}

constexpr uint16_t f16_from_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16U & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U)  // NaN: the payload's upper bits, made quiet
    return static_cast<uint16_t>(sign | 0x7E00U | (magnitude >> kF16MantissaShift & 0x3FFU));
  if (magnitude >= 0x4780'0000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 2^16 and above
  if (magnitude < 0x3880'0000U) {  // below 2^-14: adding 0.5 lets the FPU round at 2^-24, ties to even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F)));
  }
  const uint32_t rebased = magnitude - (kF16BiasDifference << 23U);
  const uint32_t odd = rebased >> kF16MantissaShift & 1U;
  return static_cast<uint16_t>(sign | (rebased + 0xFFFU + odd) >> kF16MantissaShift);
}

}  // namespace plimsoll
