// Inverse frequencies with the scaling variants in use. Formulas as in transformers' modeling_rope_utils.py;
// products that it forms in f32 are formed in f32 here.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/spec.h"

namespace plimsoll {
namespace {

// theta^(-2i/D)
void fill_plain(double theta, int64_t head_dim, std::span<float> frequencies) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    frequencies[i] = 1.0F / std::pow(static_cast<float>(theta), exponent);
  }
}

void scale_llama3(const RopeSpec& rope, std::span<float> frequencies) {
  const double length = static_cast<double>(rope.original_length);
  const double low_wavelength = length / rope.low_freq_factor;
  const double high_wavelength = length / rope.high_freq_factor;
  for (float& frequency : frequencies) {
    const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
    if (wavelength < high_wavelength) continue;
    const double slow = static_cast<double>(frequency) / rope.factor;
    if (wavelength > low_wavelength) {
      frequency = static_cast<float>(slow);
      continue;
    }
    const double smooth =
        (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    frequency = static_cast<float>((1 - smooth) * slow + smooth * static_cast<double>(frequency));
  }
}

void scale_yarn(const RopeSpec& rope, int64_t head_dim, std::span<float> frequencies) {
  const auto dims = static_cast<double>(head_dim);
  const auto correction = [&](double rotations) {
    return dims * std::log(static_cast<double>(rope.original_length) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(rope.beta_fast);
  double high = correction(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) high += 0.001;  // avoids a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const auto plain_frequency = static_cast<double>(frequencies[i]);
    frequencies[i] = static_cast<float>(plain_frequency / rope.factor * ramp + plain_frequency * (1 - ramp));
  }
}

}  // namespace

void rope_frequencies(const ModelSpec& spec, int64_t length, std::span<float> out) {
  const std::span<float> frequencies = out.first(out.size() - 1);
  const RopeSpec& rope = spec.rope;
  double theta = rope.theta;
  if (rope.type == RopeType::dynamic) {
    const auto original = static_cast<double>(rope.original_length);
    const double longest = std::max(static_cast<double>(length), original);
    const auto dims = static_cast<double>(spec.head_dim);
    theta *= std::pow(rope.factor * longest / original - (rope.factor - 1), dims / (dims - 2));
  }
  fill_plain(theta, spec.head_dim, frequencies);
  if (rope.type == RopeType::linear)
    for (float& frequency : frequencies) frequency /= static_cast<float>(rope.factor);
  if (rope.type == RopeType::llama3) scale_llama3(rope, frequencies);
  if (rope.type == RopeType::yarn) scale_yarn(rope, spec.head_dim, frequencies);
  out.back() = rope.type == RopeType::yarn ? static_cast<float>(rope.attention_factor) : 1.0F;
}

}  // namespace plimsoll
