#include "recipe/recipe.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

int64_t Warmup::steps_of(int64_t total_steps) const {
  if (unit == Unit::steps) return steps;
  if (unit == Unit::axolotl) {
    const auto share = static_cast<int64_t>(percent * static_cast<double>(total_steps) / 100.0);
    const int64_t bounded = steps > 0 ? std::min(share, steps) : share;
    return bounded == 1 ? 2 : bounded;
  }
  // Multiplied before it is divided, so that whole percentages of whole steps stay exact.
  return static_cast<int64_t>(std::ceil(percent * static_cast<double>(total_steps) / 100.0));
}

bool Every::is_due(int64_t step, int64_t total_steps, bool ends_epoch) const {
  if (unit == Unit::epochs) return ends_epoch;
  // As Warmup's: a share is rounded up to whole steps.
  const auto share = static_cast<int64_t>(std::ceil(percent * static_cast<double>(total_steps) / 100.0));
  const int64_t every = unit == Unit::percent ? std::max<int64_t>(1, share) : steps;
  return every > 0 && step % every == 0;
}

const std::array<PrecisionPreset, 5>& precision_presets() {
  static constexpr DType kF32 = DType::f32;
  static constexpr DType kBf16 = DType::bf16;
  static constexpr std::array<PrecisionPreset, 5> kPresets = {{
      {"fp32", {kF32, kF32, kF32, false, Rounding::nearest}},
      {"bf16", {kBf16, kF32, kF32, false, Rounding::stochastic}},
      {"bf16-master", {kBf16, kF32, kF32, true, Rounding::nearest}},
      {"bf16-pure", {kBf16, kBf16, kBf16, false, Rounding::stochastic}},
      {"fp16", {DType::f16, kF32, kF32, true, Rounding::nearest}},
  }};
  return kPresets;
}

Rounding default_rounding(const Precision& parts) {
  return parts.weights == DType::bf16 && !parts.master ? Rounding::stochastic : Rounding::nearest;
}

}  // namespace plimsoll
