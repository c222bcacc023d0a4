#include "io/convert.h"

#include <cstring>

#include "base/error.h"

namespace plimsoll {
namespace {

// f16 has 5 exponent bits (bias 15) and 10 of mantissa; f32 8 (bias 127) and 23.
constexpr uint32_t kMantissaShift = 13;
constexpr uint32_t kBiasDifference = 127 - 15;

template <typename T>
T load(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <typename From, typename To, typename Function>
void convert_each(std::span<const std::byte> from, std::span<std::byte> to, Function function) {
  const size_t count = from.size() / sizeof(From);
  for (size_t i = 0; i < count; ++i) {
    const To value = function(load<From>(from.data(), i));
    std::memcpy(to.data() + i * sizeof(To), &value, sizeof(To));
  }
}

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

float f32_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16U;
  const uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {  // infinity or NaN: all exponent bits set, payload moved up
    const uint32_t quiet = magnitude > 0x7C00U ? 0x0040'0000U : 0U;
    return std::bit_cast<float>(sign | 0x7F80'0000U | magnitude << kMantissaShift | quiet);
  }
  if (magnitude < 0x0400U) {  // zero or subnormal: a multiple of 2^-24, exact in f32
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << kMantissaShift) + (kBiasDifference << 23U)));
}

uint16_t f16_from_f32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16U & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U)  // NaN: the payload's upper bits, made quiet
    return static_cast<uint16_t>(sign | 0x7E00U | (magnitude >> kMantissaShift & 0x3FFU));
  if (magnitude >= 0x4780'0000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 2^16 and above
  if (magnitude < 0x3880'0000U) {  // below 2^-14: adding 0.5 lets the FPU round at 2^-24, ties to even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F)));
  }
  const uint32_t rebased = magnitude - (kBiasDifference << 23U);
  const uint32_t odd = rebased >> kMantissaShift & 1U;
  return static_cast<uint16_t>(sign | (rebased + 0xFFFU + odd) >> kMantissaShift);
}

bool can_convert(DType from, DType to) { return from == to || (is_float(from) && is_float(to)); }

void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to, DType to_dtype) {
  const auto from_size = static_cast<size_t>(size_of(from_dtype));
  const auto to_size = static_cast<size_t>(size_of(to_dtype));
  check_internal(from.size() % from_size == 0 && from.size() / from_size * to_size == to.size(),
                 "convert: the spans hold different numbers of elements");
  if (!can_convert(from_dtype, to_dtype))
    throw InternalError("convert: no conversion from " + std::string(to_string(from_dtype)) + " to " +
                        std::string(to_string(to_dtype)));
  if (from_dtype == to_dtype) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
  } else if (from_dtype == DType::f32 && to_dtype == DType::bf16) {
    convert_each<float, uint16_t>(from, to, bf16_from_f32);
  } else if (from_dtype == DType::f32 && to_dtype == DType::f16) {
    convert_each<float, uint16_t>(from, to, f16_from_f32);
  } else if (from_dtype == DType::bf16 && to_dtype == DType::f32) {
    convert_each<uint16_t, float>(from, to, f32_from_bf16);
  } else if (from_dtype == DType::bf16) {
    convert_each<uint16_t, uint16_t>(from, to, [](uint16_t x) { return f16_from_f32(f32_from_bf16(x)); });
  } else if (to_dtype == DType::f32) {
    convert_each<uint16_t, float>(from, to, f32_from_f16);
  } else {
    convert_each<uint16_t, uint16_t>(from, to, [](uint16_t x) { return bf16_from_f32(f32_from_f16(x)); });
  }
}

}  // namespace plimsoll
