// Constants of the safetensors format that its reader and its writer share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "tensor/tensor.h"

namespace plimsoll {

inline constexpr int64_t kSafetensorsPrefixBytes = 8;

// A header of 20,000 tensors takes 3 MB. The Hugging Face library stops at 100 MB, whose JSON tree would take
// a gigabyte here.
inline constexpr int64_t kMaxHeaderBytes = 32 * kMiB;

// Names of the element types, in the order in which the Hugging Face library lays tensors out.
inline constexpr std::array<std::pair<DType, std::string_view>, 10> kSafetensorsTypes = {{
    {DType::i64, "I64"},
    {DType::f64, "F64"},
    {DType::f32, "F32"},
    {DType::i32, "I32"},
    {DType::bf16, "BF16"},
    {DType::f16, "F16"},
    {DType::i16, "I16"},
    {DType::i8, "I8"},
    {DType::u8, "U8"},
    {DType::boolean, "BOOL"},
}};

}  // namespace plimsoll
