// The meaning of labels in linear_log_prob.
#pragma once

#include <cstdint>

namespace plimsoll {

// A label is a token of the answer, or -100 elsewhere; the token v of a prompt that is trained in addition to
// its answer, and counted apart, is kPromptLabel - v.
inline constexpr int32_t kPromptLabel = -101;

// Columns of the sums of a sequence.
enum class LogProbOf : uint8_t { answer, prompt };
inline constexpr int64_t kNumLogProbs = 2;

}  // namespace plimsoll
