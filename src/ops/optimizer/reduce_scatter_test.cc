#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// The second of three pieces, and the last one, which is shorter.
std::string piece_of_rank(const std::string& first, const std::string& elements) {
  return "tensor a %[70,100] gradient\n"
         "tensor b %[2560] metric\n"
         "b = reduce_scatter(a, step) {elements=" +
         elements + ", first=" + first + ", piece=2560} @a backward\n";
}

[[maybe_unused]] const bool kReduceScatterCases = register_cases({
    {.name = "reduce_scatter", .body = piece_of_rank("2560", "2560")},
    {.name = "reduce_scatter_of_the_last_rank", .body = piece_of_rank("5120", "1880")},
    {.name = "reduce_scatter_of_a_later_micro_step",
     .body = piece_of_rank("2560", "2560"),
     .step = {{StepValue::first_micro_step, 0}}},
    {.name = "reduce_scatter_of_a_later_micro_step_of_the_last_rank",
     .body = piece_of_rank("5120", "1880"),
     .step = {{StepValue::first_micro_step, 0}}},
});

}  // namespace
}  // namespace plimsoll::harness
