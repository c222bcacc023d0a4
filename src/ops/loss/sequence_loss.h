// The sums of the losses over whole sequences, in a metric tensor f64: overwritten by the first micro-step of
// an effective batch, added to by the others. The first two are the sum of losses and what it is divided by.
#pragma once

#include <cstdint>

namespace plimsoll {

// pair_loss: sequences 2i and 2i + 1 are the chosen and the rejected one of pair i.
enum class PairSum : uint8_t { loss, pairs, right, chosen, rejected, least, most };
inline constexpr int64_t kNumPairSums = 7;

// class_loss. `right` counts rows whose highest score is their class's; 0 for other problems.
enum class ClassSum : uint8_t { loss, rows, right };
inline constexpr int64_t kNumClassSums = 3;

// Attribute `problem` of class_loss: what a row's targets are, and the loss over its scores.
enum class ClassProblem : uint8_t {
  one_of,  // one class's number; softmax and cross-entropy
  any_of,  // 0 or 1 for each class; sigmoid and cross-entropy, the mean over classes
  numbers  // a number for each score; squared error, the mean over scores
};

}  // namespace plimsoll
