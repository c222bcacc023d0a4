#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

[[maybe_unused]] const bool kLinearCases = register_cases({
    {.name = "linear",
     .body = "tensor x %[9,24] input\n"
             "tensor w %[17,24] trainable\n"
             "y %[9,17] = linear(x, w, -, -) {scale=1.0} @l forward\n"},
    {.name = "linear_with_bias_and_addend",
     .body = "tensor x %[20,32] input\n"
             "tensor w %[23,32] trainable\n"
             "tensor b %[23] trainable\n"
             "tensor a %[20,23] input\n"
             "y %[20,23] = linear(x, w, b, a) {scale=0.5} @l forward\n",
     .slack = 2},
    {.name = "linear_of_live_rows",
     .body = "tensor x %[9,24] input\n"
             "tensor w %[17,24] trainable\n"
             "y %[9,17] = linear(x, w, -, -, step) {scale=1.0} @l forward\n"},
    {.name = "linear_dx",
     .body = "tensor d_y %[9,17] input\n"
             "tensor w %[17,24] trainable\n"
             "d_x %[9,24] = linear_dx(d_y, w, -) {scale=2.0} @l backward\n"},
    {.name = "linear_dx_of_live_rows",
     .body = "tensor d_y %[9,17] input\n"
             "tensor w %[17,24] trainable\n"
             "d_x %[9,24] = linear_dx(d_y, w, -, step) {scale=2.0} @l backward\n"},
    {.name = "linear_dx_adds",
     .body = "tensor d_y %[33,48] input\n"
             "tensor w %[48,40] trainable\n"
             "tensor p %[33,40] input\n"
             "d_x %[33,40] = linear_dx(d_y, w, p) {scale=2.0} @l backward\n",
     .slack = 2},
    {.name = "linear_dw_overwrites",
     .body = "tensor x %[34,24] input\n"
             "tensor d_y %[34,17] input\n"
             "tensor g f32[17,24] gradient\n"
             "g = linear_dw(x, d_y, step) {accumulate=0, scale=2.0} @l backward\n"},
    {.name = "linear_dw_adds",
     .body = "tensor x %[34,24] input\n"
             "tensor d_y %[34,17] input\n"
             "tensor g %[17,24] gradient\n"
             "g = linear_dw(x, d_y, step) {accumulate=0, scale=2.0} @l backward\n",
     .step = {{StepValue::first_micro_step, 0}},
     .slack = 2},
    // By TF32 on cards: 11 bits of each operand.
    {.name = "linear_tf32",
     .body = "tensor x %[70,40] input\n"
             "tensor w %[72,40] trainable\n"
             "y %[70,72] = linear(x, w, -, -) {scale=1.0, tf32=1} @l forward\n",
     .dtypes = {DType::f32},
     .slack = 300},
    // More than the tiles that kernels for GPUs take at a time.
    {.name = "linear_dx_of_several_tiles",
     .body = "tensor d_y %[130,72] input\n"
             "tensor w %[72,136] trainable\n"
             "tensor p %[130,136] input\n"
             "d_x %[130,136] = linear_dx(d_y, w, p, step) {scale=2.0} @l backward\n",
     .slack = 2},
    {.name = "linear_dw_of_several_tiles",
     .body = "tensor x %[130,136] input\n"
             "tensor d_y %[130,72] input\n"
             "tensor g %[72,136] gradient\n"
             "g = linear_dw(x, d_y, step) {accumulate=1, scale=2.0} @l backward\n",
     .slack = 2},
    {.name = "bias_grad_overwrites",
     .body = "tensor d_y %[130,19] input\n"
             "tensor g f32[19] gradient\n"
             "g = bias_grad(d_y, step) {accumulate=0} @l backward\n"},
    {.name = "bias_grad_adds",
     .body = "tensor d_y %[130,19] input\n"
             "tensor g %[19] gradient\n"
             "g = bias_grad(d_y, step) {accumulate=1} @l backward\n",
     .slack = 2},
});

}  // namespace
}  // namespace plimsoll::harness
