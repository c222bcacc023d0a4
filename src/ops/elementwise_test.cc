// add, dropout, gather_rows, scatter_rows, swiglu, geglu, relu, scale.
#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

[[maybe_unused]] const bool kRegistered = register_cases({
    {.name = "add",
     .body = "tensor a %[5,33] input\n"
             "tensor b %[5,33] input\n"
             "y %[5,33] = add(a, b) @s forward\n"},
    // More than one thread's piece.
    {.name = "add_long",
     .body = "tensor a %[40,1000] input\n"
             "tensor b %[40,1000] input\n"
             "y %[40,1000] = add(a, b) @s forward\n",
     .dtypes = {DType::bf16}},
    {.name = "dropout",
     .body = "tensor x %[3,70] input\n"
             "tensor samples i32[3] input\n"
             "tensor positions i32[3] input\n"
             "y %[3,70] = dropout(x, samples, positions, step) {p=0.25} @d forward\n",
     .given = {{"samples", {0, 0, 5}}, {"positions", {0, 1, 0}}}},
    {.name = "gather_rows",
     .body = "tensor x %[6,9] input\n"
             "tensor rows i32[3] input\n"
             "y %[3,9] = gather_rows(x, rows) @g forward\n",
     .given = {{"rows", {5, 0, 2}}},
     .step = {{StepValue::live_tokens, 3}}},
    // The last row is not live.
    {.name = "scatter_rows",
     .body = "tensor y %[4,9] input\n"
             "tensor rows i32[4] input\n"
             "x %[6,9] = scatter_rows(y, rows, step) {rows=6} @g backward\n",
     .given = {{"rows", {5, 0, 2, 0}}},
     .step = {{StepValue::live_tokens, 3}}},
    {.name = "relu",
     .body = "tensor x %[5,33] input\n"
             "s %[5,33] = relu(x) @m forward\n"},
    {.name = "relu_grad",
     .body = "tensor s %[5,33] input\n"
             "tensor d_s %[5,33] input\n"
             "d_x %[5,33] = relu_grad(s, d_s) @m backward\n"},
    {.name = "geglu",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "s %[5,33] = geglu(gate, up) @m forward\n"},
    {.name = "geglu_grad",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "tensor d_s %[5,33] input\n"
             "d_gate %[5,33], d_up %[5,33] = geglu_grad(gate, up, d_s) @m backward\n"},
    {.name = "scale",
     .body = "tensor x %[5,33] input\n"
             "y %[5,33] = scale(x) {factor=0.3} @m forward\n"},
    {.name = "swiglu",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "s %[5,33] = swiglu(gate, up) @m forward\n"},
    {.name = "swiglu_grad",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "tensor d_s %[5,33] input\n"
             "d_gate %[5,33], d_up %[5,33] = swiglu_grad(gate, up, d_s) @m backward\n"},
});

}  // namespace
}  // namespace plimsoll::harness
