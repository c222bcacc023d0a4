#include "formats/convert.h"

#include <cstring>

#include "base/error.h"
#include "base/format.h"

namespace plimsoll {
namespace {

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

bool can_convert(DType from, DType to) { return from == to || (is_float(from) && is_float(to)); }

void convert(std::span<const std::byte> from, DType from_dtype, std::span<std::byte> to, DType to_dtype) {
  const auto from_size = static_cast<size_t>(size_of(from_dtype));
  const auto to_size = static_cast<size_t>(size_of(to_dtype));
  check_internal(from.size() % from_size == 0 && from.size() / from_size * to_size == to.size(),
                 "convert: the spans hold different numbers of elements");
  if (!can_convert(from_dtype, to_dtype))
    throw InternalError(
        formatted("convert: no conversion from {} to {}", to_string(from_dtype), to_string(to_dtype)));
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
