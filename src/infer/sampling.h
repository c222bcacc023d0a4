// Chooses a token by its logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace plimsoll {

// The largest one; the lowest index on ties.
int32_t argmax(std::span<const float> logits);

struct SamplingOptions {
  double temperature = 0.0;  // 0: the likeliest token, always
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // the fewest tokens that have this share of the probability together
  uint64_t seed = 1;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}
  // The same seed, prompt and token number draw the same, in whatever order prompts are answered.
  int32_t choose(std::span<const float> logits, int64_t prompt, int64_t number);

 private:
  SamplingOptions options_;
  std::vector<int32_t> order_;   // token ids, likeliest first
  std::vector<double> weights_;  // of order_, not normalised
};

}  // namespace plimsoll
