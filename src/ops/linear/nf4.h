// NF4: weights as 4-bit codes of 16 levels that a normal distribution fills evenly, times the largest
// magnitude of each block. Levels, blocks and rounding are those of bitsandbytes (QLoRA,
// https://arxiv.org/abs/2305.14314), so that codes are equal and checkpoints can be exchanged.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ops/linear/nf4_kernels.h"

namespace plimsoll {

// A quantised weight [out, in] is several tensors. The codes, u8 [out, in / 2] with the first of two weights
// in the high nibble, bear the weight's own name; the others have that name and a suffix of bitsandbytes'
// checkpoints. Without double quantisation `absmax` is f32 and there is no other; with it `absmax` is u8.
inline constexpr const char* kAbsmaxSuffix = ".absmax";
inline constexpr const char* kNestedAbsmaxSuffix = ".nested_absmax";
inline constexpr const char* kNestedMapSuffix = ".nested_quant_map";
inline constexpr const char* kNestedOffsetSuffix = ".nested_offset";

// Scales of blocks in 8 bits: scale i is map[codes[i]] * absmax[i / kNf4NestedBlock] + offset, `map` being
// the values of the signed dynamic map.
//
// Fills codes and absmax, and returns the offset: the mean of the scales, summed in f64. bitsandbytes' comes
// from PyTorch's f32 sum, whose last bit depends on the machine's vector width and threads.
float nest_scales(std::span<const float> scales, std::span<const float> map, std::span<uint8_t> codes,
                  std::span<float> absmax);
// The inverse, as bitsandbytes computes it: product and sum are rounded one after the other.
void unnest_scales(std::span<const uint8_t> codes, std::span<const float> absmax, std::span<const float> map,
                   float offset, std::span<float> scales);

}  // namespace plimsoll
