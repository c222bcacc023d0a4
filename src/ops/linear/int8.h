// int8: weights as 8-bit integers times a scale for each row. The storage and the rounding are those of
// bitsandbytes' LLM.int8() (https://arxiv.org/abs/2208.07339), so that codes are equal and checkpoints can be
// read.
#pragma once

#include <string>
#include <string_view>

#include "ops/linear/int8_kernels.h"

namespace plimsoll {

// A quantised weight [out, in] is two tensors. The codes, i8 [out, in], bear the weight's own name; the largest
// magnitudes of the rows, f32 [out], that of its module and the suffix of bitsandbytes' checkpoints.
inline constexpr std::string_view kInt8AbsmaxSuffix = ".SCB";
inline constexpr std::string_view kInt8FormatSuffix = ".weight_format";  // in those alone: how rows lie
inline std::string int8_absmax_name(std::string_view weight) {
  return std::string(weight.substr(0, weight.rfind('.'))) + std::string(kInt8AbsmaxSuffix);
}

// Rows are quantised whole, through the staging of loading.
inline constexpr int64_t kInt8MostInputs = int64_t{1} << 20;

}  // namespace plimsoll
