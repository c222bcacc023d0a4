// Types of the tensors in GGUF files, in both directions: plain numbers, and blocks of values along a row
// that share their scales. The layouts of blocks are llama.cpp's; how values are rounded is ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/tensor.h"

namespace plimsoll {

// The numbers are those of the file.
//   q4_0: blocks of 32, an f16 scale and 4 bits each
//   q8_0: blocks of 32, an f16 scale and 8 bits each
//   q4_k, q5_k: blocks of 256, in 8 parts with a scale and a least value of 6 bits each
//   q6_k: blocks of 256, in 16 parts with a scale of 8 bits each
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30
};
inline constexpr int64_t kGgufBlock = 32, kGgufWideBlock = 256;

std::string_view to_string(GgufType type);
// The type that has this number in a file; none: a type that is not known here.
std::optional<GgufType> gguf_type_of(uint32_t number);

// Values of a block, 1 where the type has none, and its bytes.
struct GgufBlock {
  int64_t values = 1, bytes = 4;
};
GgufBlock gguf_block(GgufType type);
int64_t gguf_bytes(GgufType type, const Shape& shape);
// The largest magnitude that the type holds.
float gguf_range(GgufType type);

// f32 values as the type has them: f16 and bf16 rounded to the nearest. `to` has gguf_bytes of them; whole
// blocks. Allocates nothing.
void to_gguf(std::span<const float> values, GgufType type, std::span<std::byte> to);
// The inverse.
void from_gguf(std::span<const std::byte> stored, GgufType type, std::span<float> to);

}  // namespace plimsoll
