#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/philox.h"

namespace plimsoll {

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int32_t Sampler::choose(std::span<const float> logits, int64_t prompt, int64_t number) {
  if (options_.temperature == 0.0) return argmax(logits);
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto likelier = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const size_t kept =
      options_.top_k > 0 ? std::min(order_.size(), static_cast<size_t>(options_.top_k)) : order_.size();
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(),
                    likelier);
  weights_.resize(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    weights_[i] = std::exp(static_cast<double>(logit(order_[i]) - logit(order_[0])) / options_.temperature);
    total += weights_[i];
  }
  size_t nucleus = 0;
  double mass = 0;
  while (nucleus < kept && (nucleus == 0 || mass < options_.top_p * total)) mass += weights_[nucleus++];
  const PhiloxStream stream =
      philox_stream(options_.seed, static_cast<uint64_t>(prompt), static_cast<uint32_t>(number), 0, 0);
  double left = (static_cast<double>(philox_bits32(stream, 0)) + 0.5) * 0x1p-32 * mass;
  for (size_t i = 0; i + 1 < nucleus; ++i) {
    left -= weights_[i];
    if (left < 0) return order_[i];
  }
  return order_[nucleus - 1];
}

}  // namespace plimsoll
