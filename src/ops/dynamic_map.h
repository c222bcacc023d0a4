// The 8-bit dynamic code of bitsandbytes (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
// Quantization"): 256 values in [-1, 1] or [0, 1], dense near zero, the same numbers as
// functional.create_dynamic_map.
#pragma once

#include <array>
#include <cstdint>

namespace plimsoll {

// The nearest value's code, ties to the lower one, as bitsandbytes' reference and CUDA kernels have it: the
// number of `bound`s (midpoints of neighbours) below x. One table look-up and one comparison find it: no two
// bounds share the upper 16 bits of a float, so that `below` knows the code up to one.
struct DynamicMap {
  std::array<float, 256> value;  // ascending
  std::array<float, 256> bound;  // bound[i] between value[i] and value[i + 1]; the last is infinite
  // By the upper 16 bits of x: the bounds below every x of these bits. Three bytes more, as a gather reads
  // words.
  std::array<uint8_t, 65536 + 3> below;
};

const DynamicMap& signed_dynamic_map();    // first moments
const DynamicMap& unsigned_dynamic_map();  // second moments

}  // namespace plimsoll
