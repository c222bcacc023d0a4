#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

std::string rope(int inverse) {
  return "tensor x %[5,48] input\n"
         "tensor table f32[5,16] input\n"
         "y %[5,48] = rope(x, table) {inverse=" +
         std::to_string(inverse) + "} @r forward\n";
}

[[maybe_unused]] const bool kRopeCases = register_cases({
    // Two live sequences of three, each with its own frequencies; the last row is padding.
    {.name = "rope_table",
     .body = "tensor positions i32[7] input\n"
             "tensor starts i32[4] input\n"
             "tensor inv_freq f32[3,3] input\n"
             "table f32[7,4] = rope_table(positions, starts, inv_freq, step) @r forward\n",
     .given = {{"positions", {0, 1, 2, 0, 1, 100000, 9}},
               {"starts", {0, 3, 6, 6}},
               {"inv_freq", {1, 0.01, 1, 0.5, 0.003, 1.25, 7, 7, 7}}},
     .step = {{StepValue::live_tokens, 6}, {StepValue::live_sequences, 2}},
     .dtypes = {DType::f32}},
    {.name = "rope", .body = rope(0), .slack = 2},
    {.name = "rope_inverse", .body = rope(1), .slack = 2},
    // The first 8 of 12 values of a head turn.
    {.name = "rope_of_a_part",
     .body = "tensor x %[5,36] input\n"
             "tensor table f32[5,8] input\n"
             "y %[5,36] = rope(x, table) {head_dim=12, inverse=0} @r forward\n",
     .slack = 2},
    {.name = "rope_inverse_of_a_part",
     .body = "tensor x %[5,48] input\n"
             "tensor table f32[5,16] input\n"
             "y %[5,48] = rope(x, table) {head_dim=24, inverse=1} @r forward\n",
     .slack = 2},
    // Queries whose factor grows with their position: by thousands, from position 1,000 on.
    {.name = "rope_table_of_far_queries",
     .body = "tensor positions i32[7] input\n"
             "tensor starts i32[4] input\n"
             "tensor inv_freq f32[3,3] input\n"
             "table f32[7,4] = rope_table(positions, starts, inv_freq, step) {original_length=1000, "
             "position_beta=0.1} @r forward\n",
     .given = {{"positions", {0, 999, 1000, 1999, 2000, 100000, 9000}},
               {"starts", {0, 3, 6, 6}},
               {"inv_freq", {1, 0.01, 1, 0.5, 0.003, 1.25, 7, 7, 7}}},
     .step = {{StepValue::live_tokens, 6}, {StepValue::live_sequences, 2}},
     .dtypes = {DType::f32}},
    // Halves of heads that are no multiple of a register or of 16 bytes.
    {.name = "rope_of_odd_halves",
     .body = "tensor x %[5,36] input\n"
             "tensor table f32[5,18] input\n"
             "y %[5,36] = rope(x, table) {inverse=0} @r forward\n",
     .slack = 2},
});

}  // namespace
}  // namespace plimsoll::harness
