// Elements of few rows as f64, for kernels whose sums are short: made in order, rounded once.
#pragma once

#include <cstdint>

#include "tensor/bf16.h"
#include "tensor/f16.h"

namespace plimsoll {

inline double as_f64(float x) { return static_cast<double>(x); }
inline double as_f64(uint16_t bf16) { return static_cast<double>(f32_from_bf16(bf16)); }
inline double as_f64(F16 x) { return static_cast<double>(f32_from_f16(x.bits)); }
inline void set_rounded(float& to, double x) { to = static_cast<float>(x); }
inline void set_rounded(uint16_t& to, double x) { to = bf16_from_f32(static_cast<float>(x)); }
inline void set_rounded(F16& to, double x) { to.bits = f16_from_f32(static_cast<float>(x)); }

}  // namespace plimsoll
