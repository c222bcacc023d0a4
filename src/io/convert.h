// Conversion between floating-point element types, portable and exact to the bit: narrowing rounds to
// nearest, ties to even; infinities stay; a NaN stays a (quiet) NaN.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace plimsoll {

constexpr float f32_from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16U); }

constexpr uint16_t bf16_from_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  constexpr uint32_t kInfinity = 0x7F80'0000U;
  // Rounding could carry a NaN's payload over into infinity: keep its upper half and set the quiet bit.
  if ((bits & 0x7FFF'FFFFU) > kInfinity) return static_cast<uint16_t>(bits >> 16U | 0x40U);
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

float f32_from_f16(uint16_t bits);
uint16_t f16_from_f32(float value);

// Whether convert() has this pair: equal types, or two of f32, bf16, f16.
bool can_convert(DType from, DType to);

// Converts from.size() / size_of(from_dtype) elements. Spans must not overlap, need no alignment, and must
// hold the same number of elements (InternalError otherwise). Allocates nothing.
void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to, DType to_dtype);

}  // namespace plimsoll
