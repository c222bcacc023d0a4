#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

std::string norm(const std::string& max_norm) {
  return "tensor a f32[300,300] gradient\n"
         "tensor b %[17] gradient\n"
         "tensor norm f64[2] metric\n"
         "tensor a2 f64[1] metric\n"
         "tensor b2 f64[1] metric\n"
         "a2 = grad_square(a) @a update\n"
         "b2 = grad_square(b) @b update\n"
         "norm = grad_norm(step, a2, b2) {max_norm=" +
         max_norm + "} @optimizer update\n";
}

// Three ranks have a piece each: the sums of all, and that of one, which leaves the others as they are.
std::string squares_of_pieces(const std::string& range) {
  return "tensor a %[70,1000] gradient\n"
         "tensor norm f64[2] metric\n"
         "tensor a2 f64[3] metric\n"
         "a2 = grad_square(a) {" +
         range +
         "piece=23552} @a update\n"
         "norm = grad_norm(step, a2) {max_norm=1.0} @optimizer update\n";
}

[[maybe_unused]] const bool kGradNormCases = register_cases({
    {.name = "grad_square",
     .body = "tensor a %[70,1000] gradient\n"
             "tensor a2 f64[1] metric\n"
             "a2 = grad_square(a) @a update\n"},
    {.name = "grad_norm_of_pieces", .body = squares_of_pieces("")},
    {.name = "grad_norm_of_a_ranks_piece", .body = squares_of_pieces("elements=23552, first=23552, ")},
    {.name = "grad_norm_of_the_last_ranks_piece", .body = squares_of_pieces("elements=22896, first=47104, ")},
    {.name = "grad_norm_clips", .body = norm("1.0")},
    {.name = "grad_norm_below_the_limit", .body = norm("1e+06")},
    {.name = "grad_norm_without_limit", .body = norm("0.0")},
    {.name = "grad_norm_of_scaled_gradients",
     .body = norm("1.0, scaled=1"),
     .step = {{StepValue::gradient_scale, 1024}}},
    {.name = "grad_norm_of_scaled_gradients_without_limit",
     .body = norm("0.0, scaled=1"),
     .step = {{StepValue::gradient_scale, 0.5}}},
});

}  // namespace
}  // namespace plimsoll::harness
