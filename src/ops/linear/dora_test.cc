// dora_norm, dora_scale and its gradient.
#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

std::string vectors() {
  return "tensor m f32[19] trainable\n"
         "tensor lengths f32[19] frozen\n";
}
const Values kLengths(19, 1.5);

// 70 rows: more than a block of partial sums.
std::string backward(const std::string& outputs) {
  return "tensor u %[70,19] input\n" + vectors() +
         "tensor d_y %[70,19] input\n"
         "tensor g f32[19] gradient\n" +
         outputs + " = dora_scale_grad(u, m, lengths, d_y, step) {accumulate=0} @n backward\n";
}

[[maybe_unused]] const bool kDoraCases = register_cases({
    {.name = "dora_norm",
     .body = "tensor a %[3,33] trainable\n"
             "tensor w %[5,33] frozen\n"
             "tensor b %[5,3] trainable\n"
             "lengths f32[5] = dora_norm(a, w, b) {scale=0.5} @n forward\n"},
    {.name = "dora_norm_wide",
     .body = "tensor a %[2,1030] trainable\n"
             "tensor w %[4,1030] frozen\n"
             "tensor b %[4,2] trainable\n"
             "lengths f32[4] = dora_norm(a, w, b) {scale=2.0} @n forward\n"},
    {.name = "dora_scale",
     .body =
         "tensor u %[4,19] input\n" + vectors() + "y %[4,19] = dora_scale(u, m, lengths, step) @n forward\n",
     .given = {{"lengths", kLengths}}},
    {.name = "dora_scale_bias",
     .body = "tensor u %[4,19] input\n" + vectors() +
             "tensor bias %[19] frozen\n"
             "y %[4,19] = dora_scale(u, m, lengths, -, bias) @n forward\n",
     .given = {{"lengths", kLengths}}},
    {.name = "dora_scale_dropped",
     .body = "tensor u %[4,19] input\n" + vectors() +
             "tensor minus %[4,19] input\n"
             "tensor addend %[4,19] input\n"
             "y %[4,19] = dora_scale(u, m, lengths, step, -, minus, addend) @n forward\n",
     .given = {{"lengths", kLengths}},
     .slack = 2},
    {.name = "dora_scale_grad",
     .body = backward("d_u %[70,19], g"),
     .given = {{"lengths", kLengths}},
     .slack = 3},
    {.name = "dora_scale_grad_of_magnitude",
     .body = backward("-, g"),
     .given = {{"lengths", kLengths}},
     .dtypes = {DType::f32},
     .slack = 3},
});

}  // namespace
}  // namespace plimsoll::harness
