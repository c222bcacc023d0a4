#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

// Two live sequences of three planned ones, then two rows of padding.
const Values kStarts = {0, 5, 12, 12};
const std::map<StepValue, double> kStep = {{StepValue::live_tokens, 12}, {StepValue::live_sequences, 2}};

std::string forward(int window) {
  return "tensor q %[14,32] input\n"
         "tensor k %[14,16] input\n"
         "tensor v %[14,16] input\n"
         "tensor starts i32[4] input\n"
         "o %[14,32], lse f32[14,4] = attention(q, k, v, starts, step) {head_dim=8, length=7, window=" +
         std::to_string(window) + "} @a forward\n";
}
std::string backward(int window) {
  return "tensor d_o %[14,32] input\n" + forward(window) +
         "d_q %[14,32], d_k %[14,16], d_v %[14,16] = attention_grad(q, k, v, o, lse, d_o, starts, step) "
         "{head_dim=8, length=7, window=" +
         std::to_string(window) + "} @a backward\n";
}

// 4 tokens planned, 3 live, behind 5 cached ones.
std::string cached(int window) {
  return "tensor q %[4,32] input\n"
         "tensor k %[4,16] input\n"
         "tensor v %[4,16] input\n"
         "tensor k_cache %[10,16] kv_cache\n"
         "tensor v_cache %[10,16] kv_cache\n"
         "o %[4,32], k_cache, v_cache = attention_cached(q, k, v, step) {capacity=10, head_dim=8, length=10, "
         "window=" +
         std::to_string(window) + "} @a forward\n";
}

[[maybe_unused]] const bool kRegistered = register_cases({
    {.name = "attention", .body = forward(0), .given = {{"starts", kStarts}}, .step = kStep, .slack = 2},
    {.name = "attention_with_window",
     .body = forward(3),
     .given = {{"starts", kStarts}},
     .step = kStep,
     .slack = 2},
    {.name = "attention_grad",
     .body = backward(0),
     .given = {{"starts", kStarts}},
     .step = kStep,
     .slack = 6},  // o is rounded before sum(d_o * o) is taken
    {.name = "attention_grad_with_window",
     .body = backward(3),
     .given = {{"starts", kStarts}},
     .step = kStep,
     .slack = 6},
    {.name = "attention_cached_appends",
     .body = cached(0),
     .step = {{StepValue::live_tokens, 3}, {StepValue::kv_length, 5}},
     .slack = 2},
    {.name = "attention_cached_with_window",
     .body = cached(4),
     .step = {{StepValue::live_tokens, 3}, {StepValue::kv_length, 5}},
     .slack = 2},
});

}  // namespace
}  // namespace plimsoll::harness
