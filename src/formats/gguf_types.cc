#include "formats/gguf_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "formats/convert.h"
#include "formats/gguf_wide_blocks.h"

namespace plimsoll {
namespace {

constexpr auto kValues = static_cast<size_t>(kGgufBlock);
constexpr float kLargestHalf = 65504.0F;

void to_q8_0(const float* values, std::byte* to) {
  float largest = 0;
  for (size_t i = 0; i < kValues; ++i) largest = std::max(largest, std::abs(values[i]));
  const float scale = largest / 127.0F;
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  const uint16_t half = f16_from_f32(scale);
  std::memcpy(to, &half, sizeof half);
  for (size_t i = 0; i < kValues; ++i)
    to[sizeof half + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(values[i] * inverse)));
}

void from_q8_0(const std::byte* stored, float* to) {
  uint16_t half = 0;
  std::memcpy(&half, stored, sizeof half);
  const float scale = f32_from_f16(half);
  for (size_t i = 0; i < kValues; ++i)
    to[i] = scale * static_cast<float>(std::to_integer<int8_t>(stored[sizeof half + i]));
}

// The value of the largest magnitude gets the lowest code, 0, which stands for 8 steps below 0.
void to_q4_0(const float* values, std::byte* to) {
  const float* largest =
      std::max_element(values, values + kValues, [](float a, float b) { return std::abs(a) < std::abs(b); });
  const uint16_t half = f16_from_f32(*largest / -8.0F);
  const float scale = f32_from_f16(half);
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  std::memcpy(to, &half, sizeof half);
  const auto code = [&](float value) {
    return static_cast<uint8_t>(std::clamp(std::round(value * inverse) + 8.0F, 0.0F, 15.0F));
  };
  for (size_t i = 0; i < kValues / 2; ++i)
    to[sizeof half + i] = static_cast<std::byte>(code(values[i]) | code(values[i + kValues / 2]) << 4U);
}

void from_q4_0(const std::byte* stored, float* to) {
  uint16_t half = 0;
  std::memcpy(&half, stored, sizeof half);
  const float scale = f32_from_f16(half);
  for (size_t i = 0; i < kValues / 2; ++i) {
    const auto two = std::to_integer<int>(stored[sizeof half + i]);
    to[i] = scale * static_cast<float>((two & 15) - 8);
    to[i + kValues / 2] = scale * static_cast<float>((two >> 4) - 8);
  }
}

// A type whose blocks are written and read by these.
struct BlockCode {
  GgufType type;
  void (*write)(const float* values, std::byte* to);
  void (*read)(const std::byte* stored, float* to);
};
constexpr std::array kCodes = {
    BlockCode{GgufType::q4_0, to_q4_0, from_q4_0}, BlockCode{GgufType::q8_0, to_q8_0, from_q8_0},
    BlockCode{GgufType::q4_k, to_q4_k, from_q4_k}, BlockCode{GgufType::q5_k, to_q5_k, from_q5_k},
    BlockCode{GgufType::q6_k, to_q6_k, from_q6_k}};

// Null for plain numbers.
const BlockCode* code_of(GgufType type) {
  const auto* found =
      std::find_if(kCodes.begin(), kCodes.end(), [&](const auto& code) { return code.type == type; });
  return found == kCodes.end() ? nullptr : found;
}

DType plain(GgufType type) {
  return type == GgufType::f32 ? DType::f32 : type == GgufType::f16 ? DType::f16 : DType::bf16;
}

}  // namespace

std::string_view to_string(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return "f32";
    case GgufType::f16:
      return "f16";
    case GgufType::q4_0:
      return "q4_0";
    case GgufType::q8_0:
      return "q8_0";
    case GgufType::q4_k:
      return "q4_k";
    case GgufType::q5_k:
      return "q5_k";
    case GgufType::q6_k:
      return "q6_k";
    case GgufType::bf16:
      return "bf16";
  }
  throw InternalError("GGUF: unknown type");
}

std::optional<GgufType> gguf_type_of(uint32_t number) {
  for (const GgufType type : {GgufType::f32, GgufType::f16, GgufType::bf16})
    if (static_cast<uint32_t>(type) == number) return type;
  for (const BlockCode& code : kCodes)
    if (static_cast<uint32_t>(code.type) == number) return code.type;
  return std::nullopt;
}

GgufBlock gguf_block(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return {1, 4};
    case GgufType::f16:
    case GgufType::bf16:
      return {1, 2};
    case GgufType::q4_0:
      return {kGgufBlock, 2 + kGgufBlock / 2};
    case GgufType::q8_0:
      return {kGgufBlock, 2 + kGgufBlock};
    case GgufType::q4_k:
      return {kGgufWideBlock, 4 + 12 + kGgufWideBlock / 2};
    case GgufType::q5_k:
      return {kGgufWideBlock, 4 + 12 + kGgufWideBlock / 8 * 5};
    case GgufType::q6_k:
      return {kGgufWideBlock, 2 + 16 + kGgufWideBlock / 4 * 3};
  }
  throw InternalError("GGUF: unknown type");
}

int64_t gguf_bytes(GgufType type, const Shape& shape) {
  const GgufBlock block = gguf_block(type);
  return shape.elements() / block.values * block.bytes;
}

float gguf_range(GgufType type) {
  switch (type) {
    case GgufType::f16:
    case GgufType::q4_k:
    case GgufType::q5_k:
      return kLargestHalf;
    case GgufType::q4_0:
      return kLargestHalf * 8.0F;
    case GgufType::q8_0:
    case GgufType::q6_k:
      return kLargestHalf * 127.0F;
    default:
      return std::numeric_limits<float>::max();
  }
}

void to_gguf(std::span<const float> values, GgufType type, std::span<std::byte> to) {
  const BlockCode* code = code_of(type);
  if (code == nullptr) return convert(std::as_bytes(values), DType::f32, to, plain(type));
  const GgufBlock block = gguf_block(type);
  const auto width = static_cast<size_t>(block.values), bytes = static_cast<size_t>(block.bytes);
  check_internal(values.size() % width == 0 && to.size() == values.size() / width * bytes,
                 "a part of a block of a GGUF");
  for (size_t i = 0; i < values.size() / width; ++i)
    code->write(values.data() + i * width, to.data() + i * bytes);
}

void from_gguf(std::span<const std::byte> stored, GgufType type, std::span<float> to) {
  const BlockCode* code = code_of(type);
  if (code == nullptr) return convert(stored, plain(type), std::as_writable_bytes(to), DType::f32);
  const GgufBlock block = gguf_block(type);
  const auto width = static_cast<size_t>(block.values), bytes = static_cast<size_t>(block.bytes);
  check_internal(to.size() % width == 0 && stored.size() == to.size() / width * bytes,
                 "a part of a block of a GGUF");
  for (size_t i = 0; i < to.size() / width; ++i) code->read(stored.data() + i * bytes, to.data() + i * width);
}

}  // namespace plimsoll
