#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

std::string backward(const std::string& partial, const std::string& outputs, const std::string& gradient) {
  return "tensor x %[70,40] input\n"
         "tensor w %[40] trainable\n"
         "tensor d_y %[70,40] input\n"
         "tensor p %[70,40] input\n"
         "tensor g " +
         gradient +
         "[40] gradient\n"
         "y %[70,40], rstd f32[70,1] = rms_norm(x, w) {eps=1e-05} @n forward\n" +
         outputs + " = rms_norm_grad(x, w, rstd, d_y, " + partial +
         ", step) {accumulate=0, eps=1e-05} @n backward\n";
}

[[maybe_unused]] const bool kRegistered = register_cases({
    {.name = "rms_norm",
     .body = "tensor x %[5,40] input\n"
             "tensor w %[40] trainable\n"
             "y %[5,40], rstd f32[5,1] = rms_norm(x, w) {eps=1e-05} @n forward\n",
     .slack = 2},
    {.name = "rms_norm_of_heads",
     .body = "tensor x %[5,48] input\n"
             "tensor w %[16] trainable\n"
             "y %[5,48], rstd f32[5,3] = rms_norm(x, w) {eps=1e-06} @n forward\n",
     .slack = 2},
    {.name = "rms_norm_grad", .body = backward("-", "d_x %[70,40], g", "f32"), .slack = 3},
    {.name = "rms_norm_grad_adds",
     .body = backward("p", "d_x %[70,40], g", "%"),
     .step = {{StepValue::first_micro_step, 0}},
     .slack = 3},
    {.name = "rms_norm_grad_of_a_frozen_weight", .body = backward("p", "d_x %[70,40], -", "f32"), .slack = 3},
    {.name = "rms_norm_grad_of_the_weight_only", .body = backward("-", "-, g", "f32"), .slack = 3},
});

}  // namespace
}  // namespace plimsoll::harness
