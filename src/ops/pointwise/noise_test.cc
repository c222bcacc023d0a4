// embedding_noise.
#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

[[maybe_unused]] const bool kNoiseCases = register_cases({
    // Two sequences of 3 and 1 tokens, and one row of padding.
    {.name = "embedding_noise",
     .body = "tensor x %[5,70] input\n"
             "tensor samples i32[5] input\n"
             "tensor positions i32[5] input\n"
             "tensor lengths i32[5] input\n"
             "y %[5,70] = embedding_noise(x, samples, positions, lengths, step) {alpha=5.0} @e forward\n",
     .given = {{"samples", {0, 0, 0, 4, 0}}, {"positions", {0, 1, 2, 0, 0}}, {"lengths", {3, 3, 3, 1, 0}}},
     .step = {{StepValue::live_tokens, 4}, {StepValue::live_sequences, 2}}},
});

}  // namespace
}  // namespace plimsoll::harness
