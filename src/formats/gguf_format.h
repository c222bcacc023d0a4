// Numbers of the GGUF format that its writer and its reader share.
#pragma once

#include <cstdint>

namespace plimsoll::gguf_format {

inline constexpr int64_t kAlignment = 32;  // of the first tensor and of each; files may state another one
inline constexpr uint32_t kVersion = 3;
// Kinds of values.
inline constexpr uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7,
                          kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;

}  // namespace plimsoll::gguf_format
