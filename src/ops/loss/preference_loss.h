// The losses of preference training, and their sums in a metric tensor f64: overwritten by the first
// micro-step of an effective batch, added to by the others.
#pragma once

#include <cstdint>

namespace plimsoll {

// Attribute `loss` of preference_loss. Sequences 2i and 2i + 1 are the chosen and the rejected answer of pair
// i; c and r are their log-probabilities less the reference's, |c| and |r| their tokens.
enum class PreferenceLoss : uint8_t {
  sigmoid,       // -log sigmoid(beta (c - r)) (DPO; Rafailov et al., 2023)
  sigmoid_norm,  // the same of c / |c| - r / |r|
  ipo,           // (c / |c| - r / |r| - 1 / (2 beta))^2 (Azar et al., 2023)
  orpo           // -beta log sigmoid(log odds ratio of the means), without a reference (Hong et al., 2024)
};

// The first two are the sum of losses and the number of pairs that it is divided by; log odds are of orpo.
enum class PreferenceSum : uint8_t {
  loss,
  pairs,
  right,  // pairs whose chosen reward is higher
  chosen_rewards,
  rejected_rewards,
  chosen_logps,
  rejected_logps,
  nll,
  log_odds_chosen,
  log_odds_ratio
};
inline constexpr int64_t kNumPreferenceSums = 10;

}  // namespace plimsoll
