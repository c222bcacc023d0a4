#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

std::string backward(const std::string& partial, const std::string& outputs, const std::string& gradient,
                     const std::string& width = "40", const std::string& form = "") {
  const std::string x = "%[70," + width + "]";
  return "tensor x " + x + " input\n" + "tensor w %[" + width + "] trainable\n" + "tensor d_y " + x +
         " input\n" + "tensor p " + x + " input\n" + "tensor g " + gradient + "[" + width + "] gradient\n" +
         "y " + x + ", rstd f32[70,1] = rms_norm(x, w) {eps=1e-05" + form + "} @n forward\n" + outputs +
         " = rms_norm_grad(x, w, rstd, d_y, " + partial + ", step) {accumulate=0, eps=1e-05" + form +
         "} @n backward\n";
}

[[maybe_unused]] const bool kRmsNormCases = register_cases({
    {.name = "rms_norm",
     .body = "tensor x %[5,40] input\n"
             "tensor w %[40] trainable\n"
             "y %[5,40], rstd f32[5,1] = rms_norm(x, w) {eps=1e-05} @n forward\n",
     .slack = 2},
    // A block of a GPU takes a row of this width, a warp one of less.
    {.name = "rms_norm_wide",
     .body = "tensor x %[2,1032] input\n"
             "tensor w %[1032] trainable\n"
             "y %[2,1032], rstd f32[2,1] = rms_norm(x, w) {eps=1e-05} @n forward\n",
     .slack = 2},
    {.name = "rms_norm_of_heads",
     .body = "tensor x %[5,48] input\n"
             "tensor w %[16] trainable\n"
             "y %[5,48], rstd f32[5,3] = rms_norm(x, w) {eps=1e-06} @n forward\n",
     .slack = 2},
    {.name = "rms_norm_rounds_last",
     .body = "tensor x %[5,48] input\n"
             "tensor w %[16] trainable\n"
             "y %[5,48], rstd f32[5,3] = rms_norm(x, w) {eps=1e-06, form='round_last'} @n forward\n"},
    {.name = "rms_norm_plus_one",
     .body = "tensor x %[5,40] input\n"
             "tensor w %[40] trainable\n"
             "y %[5,40], rstd f32[5,1] = rms_norm(x, w) {eps=1e-06, form='plus_one'} @n forward\n"},
    {.name = "rms_norm_plus_one_wide",
     .body = "tensor x %[2,1033] input\n"
             "tensor w %[1033] trainable\n"
             "y %[2,1033], rstd f32[2,1] = rms_norm(x, w) {eps=1e-06, form='plus_one'} @n forward\n"},
    {.name = "rms_norm_grad_plus_one",
     .body = backward("p", "d_x %[70,40], g", "f32", "40", ", form='plus_one'"),
     .slack = 3},
    {.name = "rms_norm_grad_plus_one_wide",
     .body = backward("-", "d_x %[70,1033], g", "%", "1033", ", form='plus_one'"),
     .slack = 3},
    {.name = "rms_norm_grad_rounds_last",
     .body = backward("p", "d_x %[70,40], g", "f32", "40", ", form='round_last'"),
     .slack = 3},
    {.name = "rms_norm_grad", .body = backward("-", "d_x %[70,40], g", "f32"), .slack = 3},
    {.name = "rms_norm_grad_wide", .body = backward("p", "d_x %[70,1033], g", "f32", "1033"), .slack = 3},
    {.name = "rms_norm_grad_adds",
     .body = backward("p", "d_x %[70,40], g", "%"),
     .step = {{StepValue::first_micro_step, 0}},
     .slack = 3},
    {.name = "rms_norm_grad_of_a_frozen_weight", .body = backward("p", "d_x %[70,40], -", "f32"), .slack = 3},
    {.name = "rms_norm_grad_of_the_weight_only", .body = backward("-", "-, g", "f32"), .slack = 3},
});

}  // namespace
}  // namespace plimsoll::harness
