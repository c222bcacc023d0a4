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
    {.name = "linear_with_rider",
     .body = "tensor x %[20,32] input\n"
             "tensor w %[23,32] trainable\n"
             "tensor b %[23] trainable\n"
             "tensor a %[20,23] input\n"
             "tensor t %[20,5] input\n"
             "tensor u %[23,5] trainable\n"
             "y %[20,23] = linear(x, w, b, a, -, t, u) {adapter_scale=1.5, scale=0.5} @l forward\n",
     .slack = 2},
    {.name = "linear_with_rider_of_live_rows",
     .body = "tensor x %[9,24] input\n"
             "tensor w %[17,24] trainable\n"
             "tensor t %[9,16] input\n"
             "tensor u %[17,16] trainable\n"
             "y %[9,17] = linear(x, w, -, -, step, t, u) {adapter_scale=2.0, scale=1.0} @l forward\n",
     .slack = 2},
    // More than a block of k, which ends within the fused adapter's; and more than the tiles of kernels for GPUs.
    {.name = "linear_with_rider_behind_blocks",
     .body = "tensor x %[70,1100] input\n"
             "tensor w %[136,1100] trainable\n"
             "tensor t %[70,70] input\n"
             "tensor u %[136,70] trainable\n"
             "y %[70,136] = linear(x, w, -, -, step, t, u) {adapter_scale=3.0, scale=1.0} @l forward\n",
     .slack = 2,
     .differences = false},
    {.name = "linear_with_rider_tf32",
     .body = "tensor x %[70,40] input\n"
             "tensor w %[72,40] trainable\n"
             "tensor t %[70,24] input\n"
             "tensor u %[72,24] trainable\n"
             "y %[70,72] = linear(x, w, -, -, -, t, u) {adapter_scale=3.0, scale=1.0, tf32=1} @l forward\n",
     .dtypes = {DType::f32},
     .slack = 300,
     .differences = false},
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
    {.name = "linear_dx_with_rider",
     .body = "tensor d_y %[9,17] input\n"
             "tensor w %[17,24] trainable\n"
             "tensor d_t %[9,5] input\n"
             "tensor a %[5,24] trainable\n"
             "d_x %[9,24] = linear_dx(d_y, w, -, -, d_t, a) {adapter_scale=0.75, scale=2.0} @l backward\n",
     .slack = 2},
    {.name = "linear_dx_with_rider_adds",
     .body =
         "tensor d_y %[130,72] input\n"
         "tensor w %[72,136] trainable\n"
         "tensor p %[130,136] input\n"
         "tensor d_t %[130,40] input\n"
         "tensor a %[40,136] trainable\n"
         "d_x %[130,136] = linear_dx(d_y, w, p, step, d_t, a) {adapter_scale=1.0, scale=1.0} @l backward\n",
     .slack = 2},
    // Few rows: what lies as it came is packed where a fused adapter is behind it.
    {.name = "linear_dx_with_rider_of_few_rows",
     .body = "tensor d_y %[7,400] input\n"
             "tensor w %[400,72] trainable\n"
             "tensor p %[7,72] input\n"
             "tensor d_t %[7,16] input\n"
             "tensor a %[16,72] trainable\n"
             "d_x %[7,72] = linear_dx(d_y, w, p, step, d_t, a) {adapter_scale=1.0, scale=1.0} @l backward\n",
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
     .slack = 300,
     .differences = false},
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
