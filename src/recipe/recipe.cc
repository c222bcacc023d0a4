#include "recipe/recipe.h"

#include <cmath>

namespace plimsoll {

int64_t Warmup::steps_of(int64_t total_steps) const {
  if (unit == Unit::steps) return steps;
  // Multiplied before it is divided, so that whole percentages of whole steps stay exact.
  return static_cast<int64_t>(std::ceil(percent * static_cast<double>(total_steps) / 100.0));
}

const std::array<PrecisionPreset, 4>& precision_presets() {
  static constexpr DType kF32 = DType::f32;
  static constexpr DType kBf16 = DType::bf16;
  static constexpr std::array<PrecisionPreset, 4> kPresets = {{
      {"fp32", {kF32, kF32, kF32, false, Rounding::nearest}},
      {"bf16", {kBf16, kF32, kF32, false, Rounding::stochastic}},
      {"bf16-master", {kBf16, kF32, kF32, true, Rounding::nearest}},
      {"bf16-pure", {kBf16, kBf16, kBf16, false, Rounding::stochastic}},
  }};
  return kPresets;
}

Rounding default_rounding(const Precision& parts) {
  return parts.weights == DType::bf16 && !parts.master ? Rounding::stochastic : Rounding::nearest;
}

}  // namespace plimsoll
