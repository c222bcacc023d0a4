#include "formats/gguf_wide_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "tensor/f16.h"

namespace plimsoll {
namespace {

constexpr size_t kBlock = 256;
constexpr size_t kPart = 32, kParts = kBlock / kPart;                 // of q4_k and q5_k
constexpr size_t kShortPart = 16, kShortParts = kBlock / kShortPart;  // of q6_k
constexpr float kMostSix = 63;                                        // a scale or a least value in 6 bits

float read_half(const std::byte* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return f32_from_f16(bits);
}

// Returns the half's value as it is read again.
float write_half(float value, std::byte* to) {
  const uint16_t bits = f16_from_f32(value);
  std::memcpy(to, &bits, sizeof bits);
  return f32_from_f16(bits);
}

float code_of(float value, float inverse, float least, float most) {
  return std::clamp(std::nearbyint(value * inverse), least, most);
}

// Large values matter more to a product than small ones.
std::array<float, kPart> weights_of(std::span<const float> values) {
  float squares = 0;
  for (const float value : values) squares += value * value;
  const float usual = std::sqrt(squares / static_cast<float>(values.size()));
  std::array<float, kPart> weights{};
  for (size_t i = 0; i < values.size(); ++i) weights[i] = usual + std::abs(values[i]);
  return weights;
}

// values ~ scale * code - below, with codes from 0 on; neither is negative.
struct AffineFit {
  float scale = 0, below = 0;
};

// The sums of a least squares fit of values by codes.
struct FitSums {
  double w = 0, q = 0, qq = 0, v = 0, qv = 0;
  void add(double weight, double code, double value) {
    w += weight;
    q += weight * code;
    qq += weight * code * code;
    v += weight * value;
    qv += weight * code * value;
  }
  // A least value above 0 is not to be had: then by the scale alone.
  [[nodiscard]] AffineFit solved() const {
    const double determinant = w * qq - q * q;
    if (determinant > 1e-9 * w * qq) {
      const AffineFit fit{static_cast<float>((w * qv - q * v) / determinant),
                          static_cast<float>((q * qv - qq * v) / determinant)};
      if (fit.below >= 0) return fit;
    }
    return {qq > 0 ? static_cast<float>(qv / qq) : 0.0F, 0.0F};
  }
  // The error of the fit, less what no fit changes.
  [[nodiscard]] double error(const AffineFit& fit) const {
    return fit.scale * fit.scale * qq - 2 * fit.scale * fit.below * q + fit.below * fit.below * w -
           2 * fit.scale * qv + 2 * fit.below * v;
  }
};

// Tries ranges a little narrower and wider than that of the values, each with the best scale and least value
// for the codes that it gives.
AffineFit fit_affine(std::span<const float> values, float most) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const float least = std::min(0.0F, *low), range = *high - least;
  if (!(range > 0)) return {0, -least};
  const auto weights = weights_of(values);
  AffineFit best;
  double best_error = INFINITY;
  for (int step = -4; step <= 6; ++step) {
    const float inverse = (most + 0.2F * static_cast<float>(step)) / range;
    FitSums sums;
    for (size_t i = 0; i < values.size(); ++i)
      sums.add(weights[i], code_of(values[i] - least, inverse, 0, most), values[i]);
    const AffineFit fit = sums.solved();
    const double error = sums.error(fit);
    if (!(fit.scale > 0) || error >= best_error) continue;
    best = fit;
    best_error = error;
  }
  return best.scale > 0 ? best : AffineFit{range / most, -least};
}

// Eight scales and least values of 6 bits in 12 bytes: the first four whole, each in its own byte; of the
// other four the lower halves together and the upper bits above the first ones.
void pack_sixes(std::span<const uint8_t, kParts> scales, std::span<const uint8_t, kParts> belows,
                std::byte* to) {
  for (size_t i = 0; i < 4; ++i) {
    to[i] = static_cast<std::byte>(scales[i] | (scales[i + 4] >> 4U) << 6U);
    to[i + 4] = static_cast<std::byte>(belows[i] | (belows[i + 4] >> 4U) << 6U);
    to[i + 8] = static_cast<std::byte>((scales[i + 4] & 15U) | (belows[i + 4] & 15U) << 4U);
  }
}

struct Six {
  uint8_t scale = 0, below = 0;
};
Six unpack_six(const std::byte* from, size_t part) {
  const auto at = [&](size_t i) { return std::to_integer<unsigned>(from[i]); };
  if (part < 4) return {static_cast<uint8_t>(at(part) & 63U), static_cast<uint8_t>(at(part + 4) & 63U)};
  return {static_cast<uint8_t>((at(part + 4) & 15U) | (at(part - 4) >> 6U) << 4U),
          static_cast<uint8_t>(at(part + 4) >> 4U | (at(part) >> 6U) << 4U)};
}

// The head of a block of q4_k or q5_k, 16 bytes, and the codes of its values.
std::array<uint8_t, kBlock> to_parts(const float* values, float most, std::byte* to) {
  std::array<AffineFit, kParts> fits;
  float largest = 0, deepest = 0;
  for (size_t part = 0; part < kParts; ++part) {
    fits[part] = fit_affine(std::span(values + part * kPart, kPart), most);
    largest = std::max(largest, fits[part].scale);
    deepest = std::max(deepest, fits[part].below);
  }
  const float scale = write_half(largest / kMostSix, to), below = write_half(deepest / kMostSix, to + 2);
  const float by_scale = scale > 0 ? 1 / scale : 0, by_below = below > 0 ? 1 / below : 0;
  std::array<uint8_t, kParts> scales{}, belows{};
  std::array<uint8_t, kBlock> codes{};
  for (size_t part = 0; part < kParts; ++part) {
    scales[part] = static_cast<uint8_t>(code_of(fits[part].scale, by_scale, 0, kMostSix));
    belows[part] = static_cast<uint8_t>(code_of(fits[part].below, by_below, 0, kMostSix));
    const float step = scale * scales[part], least = below * belows[part];
    const float inverse = step > 0 ? 1 / step : 0;
    for (size_t i = part * kPart; i < (part + 1) * kPart; ++i)
      codes[i] = static_cast<uint8_t>(code_of(values[i] + least, inverse, 0, most));
  }
  pack_sixes(scales, belows, to + 4);
  return codes;
}

// The steps of a block's parts.
struct PartSteps {
  std::array<float, kParts> step{}, least{};
};
PartSteps read_parts(const std::byte* stored) {
  const float scale = read_half(stored), below = read_half(stored + 2);
  PartSteps steps;
  for (size_t part = 0; part < kParts; ++part) {
    const Six six = unpack_six(stored + 4, part);
    steps.step[part] = scale * six.scale;
    steps.least[part] = below * six.below;
  }
  return steps;
}

constexpr size_t kHead = 16;                 // of q4_k and q5_k
constexpr size_t kFifths = kBlock / 8;       // bytes of the fifth bits of q5_k, before the other four
constexpr size_t kLower = 128, kUpper = 64;  // bytes of q6_k's lower four and upper two bits

// Pairs of parts share their bytes: the first has the lower halves.
void pack_fours(const std::array<uint8_t, kBlock>& codes, std::byte* to) {
  for (size_t pair = 0; pair < kParts / 2; ++pair)
    for (size_t i = 0; i < kPart; ++i) {
      const uint8_t first = codes[2 * pair * kPart + i], second = codes[(2 * pair + 1) * kPart + i];
      to[pair * kPart + i] = static_cast<std::byte>((first & 15U) | (second & 15U) << 4U);
    }
}

unsigned four_of(const std::byte* fours, size_t part, size_t i) {
  const auto two = std::to_integer<unsigned>(fours[part / 2 * kPart + i]);
  return part % 2 == 0 ? two & 15U : two >> 4U;
}

// values ~ scale * code, with codes from -32 to 31; the scale may be negative.
float fit_signed(std::span<const float> values) {
  const float largest = *std::max_element(values.begin(), values.end(),
                                          [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (largest == 0) return 0;
  float best = largest / -32.0F, best_gain = -1;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(32.0F + 0.1F * static_cast<float>(step)) / largest;
    float qv = 0, qq = 0;
    for (const float value : values) {
      const float code = code_of(value, inverse, -32, 31), weight = value * value;
      qv += weight * code * value;
      qq += weight * code * code;
    }
    if (qq <= 0 || qv * qv <= best_gain * qq) continue;
    best = qv / qq;
    best_gain = qv * qv / qq;
  }
  return best;
}

}  // namespace

void to_q4_k(const float* values, std::byte* to) { pack_fours(to_parts(values, 15, to), to + kHead); }

void from_q4_k(const std::byte* stored, float* to) {
  const PartSteps steps = read_parts(stored);
  for (size_t part = 0; part < kParts; ++part)
    for (size_t i = 0; i < kPart; ++i)
      to[part * kPart + i] =
          steps.step[part] * static_cast<float>(four_of(stored + kHead, part, i)) - steps.least[part];
}

// The fifth bits of a part are one bit of each of 32 bytes.
void to_q5_k(const float* values, std::byte* to) {
  const auto codes = to_parts(values, 31, to);
  for (size_t i = 0; i < kPart; ++i) {
    unsigned bits = 0;
    for (size_t part = 0; part < kParts; ++part) bits |= unsigned{codes[part * kPart + i]} >> 4U << part;
    to[kHead + i] = static_cast<std::byte>(bits);
  }
  pack_fours(codes, to + kHead + kFifths);
}

void from_q5_k(const std::byte* stored, float* to) {
  const PartSteps steps = read_parts(stored);
  for (size_t part = 0; part < kParts; ++part)
    for (size_t i = 0; i < kPart; ++i) {
      const unsigned fifth = std::to_integer<unsigned>(stored[kHead + i]) >> part & 1U;
      const unsigned code = four_of(stored + kHead + kFifths, part, i) | fifth << 4U;
      to[part * kPart + i] = steps.step[part] * static_cast<float>(code) - steps.least[part];
    }
}

// Each half of a block has 64 bytes of lower bits, of two values each that are 64 apart, and 32 of upper
// bits, of four values each that are 32 apart.
void to_q6_k(const float* values, std::byte* to) {
  std::array<float, kShortParts> fits{};
  float largest = 0;
  for (size_t part = 0; part < kShortParts; ++part) {
    fits[part] = fit_signed(std::span(values + part * kShortPart, kShortPart));
    if (std::abs(fits[part]) > std::abs(largest)) largest = fits[part];
  }
  std::byte* scales = to + kLower + kUpper;
  const float scale = write_half(largest / -128.0F, scales + kShortParts);
  const float inverse = scale != 0 ? 1 / scale : 0;
  std::array<uint8_t, kBlock> codes{};
  for (size_t part = 0; part < kShortParts; ++part) {
    const float multiple = code_of(fits[part], inverse, -128, 127), step = scale * multiple;
    scales[part] = static_cast<std::byte>(static_cast<int8_t>(multiple));
    for (size_t i = part * kShortPart; i < (part + 1) * kShortPart; ++i)
      codes[i] = static_cast<uint8_t>(code_of(values[i], step != 0 ? 1 / step : 0, -32, 31) + 32);
  }
  for (size_t half = 0; half < 2; ++half)
    for (size_t i = 0; i < 32; ++i) {
      const auto code = [&](size_t quarter) { return unsigned{codes[128 * half + 32 * quarter + i]}; };
      to[64 * half + i] = static_cast<std::byte>((code(0) & 15U) | (code(2) & 15U) << 4U);
      to[64 * half + 32 + i] = static_cast<std::byte>((code(1) & 15U) | (code(3) & 15U) << 4U);
      to[kLower + 32 * half + i] = static_cast<std::byte>(code(0) >> 4U | code(1) >> 4U << 2U |
                                                          code(2) >> 4U << 4U | code(3) >> 4U << 6U);
    }
}

void from_q6_k(const std::byte* stored, float* to) {
  const std::byte* scales = stored + kLower + kUpper;
  const float scale = read_half(scales + kShortParts);
  for (size_t at = 0; at < kBlock; ++at) {
    const size_t half = at / 128, quarter = at % 128 / 32, i = at % 32;
    const auto two = std::to_integer<unsigned>(stored[64 * half + 32 * (quarter % 2) + i]);
    const unsigned lower = quarter < 2 ? two & 15U : two >> 4U;
    const unsigned upper = std::to_integer<unsigned>(stored[kLower + 32 * half + i]) >> 2 * quarter & 3U;
    const auto multiple = static_cast<float>(std::to_integer<int8_t>(scales[at / kShortPart]));
    to[at] = scale * multiple * (static_cast<float>(lower | upper << 4U) - 32.0F);
  }
}

}  // namespace plimsoll
