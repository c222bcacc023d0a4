#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Two live sequences of three; the last two rows are padding.
OpCase case_of(const std::string& name, const std::string& body) {
  return {.name = name,
          .body = "tensor starts i32[4] input\n" + body,
          .given = {{"starts", {0, 4, 5, 5}}},
          .step = {{StepValue::live_tokens, 5}, {StepValue::live_sequences, 2}}};
}

[[maybe_unused]] const bool kMeanRowsCases =
    register_cases({case_of("mean_rows",
                            "tensor x %[7,9] input\n"
                            "y %[3,9] = mean_rows(x, starts, step) @p forward\n"),
                    case_of("mean_rows_grad",
                            "tensor d_y %[3,9] input\n"
                            "d_x %[7,9] = mean_rows_grad(d_y, starts, step) {rows=7} @p backward\n")});

}  // namespace
}  // namespace plimsoll::harness
