#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

std::string backward(const std::string& partial, const std::string& outputs, const std::string& gradient) {
  return "tensor x %[70,40] input\n"
         "tensor w %[40] trainable\n"
         "tensor b %[40] trainable\n"
         "tensor d_y %[70,40] input\n"
         "tensor p %[70,40] input\n"
         "tensor g " +
         gradient +
         "[40] gradient\n"
         "y %[70,40], stats f32[70,2] = layer_norm(x, w, b) {eps=1e-05} @n forward\n" +
         outputs + " = layer_norm_grad(x, w, stats, d_y, " + partial + ", step) {accumulate=0} @n backward\n";
}

[[maybe_unused]] const bool kLayerNormCases = register_cases({
    {.name = "layer_norm",
     .body = "tensor x %[5,41] input\n"
             "tensor w %[41] trainable\n"
             "tensor b %[41] trainable\n"
             "y %[5,41], stats f32[5,2] = layer_norm(x, w, b) {eps=1e-12} @n forward\n"},
    // The mean is far from zero: squares of the values themselves would lose the variance.
    {.name = "layer_norm_far_from_zero",
     .body = "tensor x %[1,4] input\n"
             "tensor w %[4] trainable\n"
             "tensor b %[4] trainable\n"
             "y %[1,4], stats f32[1,2] = layer_norm(x, w, b) {eps=1e-12} @n forward\n",
     .given = {{"x", {20001, 20002, 20003, 20006}}},
     .dtypes = {DType::f32},
     .slack = 100},
    {.name = "layer_norm_without_bias",
     .body = "tensor x %[5,41] input\n"
             "tensor w %[41] input\n"
             "y %[5,41], stats f32[5,2] = layer_norm(x, w) {eps=1e-05} @n forward\n"},
    {.name = "layer_norm_grad", .body = backward("-", "d_x %[70,40], g", "f32"), .slack = 3},
    {.name = "layer_norm_grad_adds",
     .body = backward("p", "d_x %[70,40], g", "%"),
     .step = {{StepValue::first_micro_step, 0}},
     .slack = 3},
    {.name = "layer_norm_grad_of_frozen_weights",
     .body = backward("p", "d_x %[70,40], -", "f32"),
     .slack = 3},
    // On GPUs a whole block takes a row.
    {.name = "layer_norm_grad_wide",
     .body = "tensor x %[3,600] input\n"
             "tensor w %[600] trainable\n"
             "tensor b %[600] trainable\n"
             "tensor d_y %[3,600] input\n"
             "y %[3,600], stats f32[3,2] = layer_norm(x, w, b) {eps=1e-05} @n forward\n"
             "d_x %[3,600], - = layer_norm_grad(x, w, stats, d_y, -, step) {accumulate=0} @n backward\n",
     .slack = 10},
    {.name = "layer_norm_grad_of_the_weight_only", .body = backward("-", "-, g", "f32"), .slack = 3},
});

}  // namespace
}  // namespace plimsoll::harness
