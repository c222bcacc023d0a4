// add, dropout, split_columns, join_columns, gather_rows, scatter_rows, swiglu, geglu, gelu, relu, tanh, scale.
#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

[[maybe_unused]] const bool kElementwiseCases = register_cases({
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
    {.name = "dropout_long",
     .body = "tensor x %[5,330] input\n"
             "tensor samples i32[5] input\n"
             "tensor positions i32[5] input\n"
             "y %[5,330] = dropout(x, samples, positions, step) {p=0.25} @d forward\n",
     .given = {{"samples", Values(5, 3)}, {"positions", {0, 1, 2, 3, 4}}}},
    {.name = "split_columns",
     .body = "tensor x %[5,24] input\n"
             "a %[5,8], b %[5,8], c %[5,8] = split_columns(x) {a_width=8, b_width=8, groups=1} @s forward\n"},
    {.name = "split_columns_by_head",
     .body = "tensor x %[3,30] input\n"
             "a %[3,12], b %[3,18], - = split_columns(x) {a_width=2, b_width=3, groups=6} @s forward\n"},
    {.name = "join_columns",
     .body = "tensor a %[4,6] input\n"
             "tensor b %[4,2] input\n"
             "tensor c %[4,10] input\n"
             "x %[4,18] = join_columns(a, b, c) {groups=2} @s forward\n"},
    {.name = "join_columns_of_two",
     .body = "tensor a %[4,6] input\n"
             "tensor b %[4,9] input\n"
             "x %[4,15] = join_columns(a, b, -) {groups=3} @s forward\n"},
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
    {.name = "gather_rows_that_repeat",
     .body = "tensor x %[6,9] input\n"
             "tensor rows i32[4] input\n"
             "y %[4,9] = gather_rows(x, rows) {repeats=1} @g forward\n",
     .given = {{"rows", {5, 0, 5, 2}}},
     .step = {{StepValue::live_tokens, 4}}},
    {.name = "scatter_rows_that_repeat",
     .body = "tensor y %[5,9] input\n"
             "tensor rows i32[5] input\n"
             "x %[6,9] = scatter_rows(y, rows, step) {repeats=1, rows=6} @g backward\n",
     .given = {{"rows", {5, 0, 5, 2, 0}}},
     .step = {{StepValue::live_tokens, 4}}},
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
    // Both in one tensor, and gelu by the normal distribution.
    {.name = "geglu_of_halves",
     .body = "tensor gate %[5,66] input\n"
             "s %[5,33] = geglu(gate) {approximate='none'} @m forward\n"},
    {.name = "geglu_by_the_normal_distribution",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "s %[5,33] = geglu(gate, up) {approximate='none'} @m forward\n"},
    {.name = "geglu_grad_of_halves",
     .body = "tensor gate %[5,48] input\n"
             "tensor d_s %[5,24] input\n"
             "d_gate %[5,48], - = geglu_grad(gate, -, d_s) {approximate='none'} @m backward\n"},
    {.name = "swiglu_of_halves",
     .body = "tensor gate %[5,66] input\n"
             "s %[5,33] = swiglu(gate) @m forward\n"},
    {.name = "swiglu_of_packed_halves",
     .body = "tensor gate %[5,48] input\n"
             "s %[5,24] = swiglu(gate, -) @m forward\n"},
    {.name = "swiglu_grad_of_halves",
     .body = "tensor gate %[5,66] input\n"
             "tensor d_s %[5,33] input\n"
             "d_gate %[5,66], - = swiglu_grad(gate, -, d_s) @m backward\n"},
    {.name = "gelu",
     .body = "tensor x %[5,33] input\n"
             "s %[5,33] = gelu(x) {approximate='none'} @m forward\n"},
    // Both sides of every change of form, and far out.
    {.name = "gelu_far_out",
     .body = "tensor x %[1,16] input\n"
             "s %[1,16] = gelu(x) {approximate='none'} @m forward\n",
     .given = {{"x", {-50, -13, -9, -5.5, -4, -3, -1, -0.0625, 0.03125, 0.5, 2, 3.5, 4.5, 6, 9, 100}}}},
    {.name = "gelu_by_tanh",
     .body = "tensor x %[5,33] input\n"
             "s %[5,33] = gelu(x) {approximate='tanh'} @m forward\n"},
    {.name = "gelu_grad",
     .body = "tensor x %[5,33] input\n"
             "tensor d_s %[5,33] input\n"
             "d_x %[5,33] = gelu_grad(x, d_s) {approximate='none'} @m backward\n"},
    {.name = "gelu_grad_far_out",
     .body = "tensor x %[1,8] input\n"
             "tensor d_s %[1,8] input\n"
             "d_x %[1,8] = gelu_grad(x, d_s) {approximate='none'} @m backward\n",
     .given = {{"x", {-50, -9, -5, -0.75, 0, 4, 8, 100}}}},
    {.name = "gelu_grad_by_tanh",
     .body = "tensor x %[5,33] input\n"
             "tensor d_s %[5,33] input\n"
             "d_x %[5,33] = gelu_grad(x, d_s) {approximate='tanh'} @m backward\n"},
    {.name = "tanh",
     .body = "tensor x %[5,33] input\n"
             "y %[5,33] = tanh(x) @m forward\n"},
    {.name = "tanh_far_out",
     .body = "tensor x %[1,8] input\n"
             "y %[1,8] = tanh(x) @m forward\n",
     .given = {{"x", {-100, -9, -4, -1e-4, 1e-3, 2.5, 7, 30}}}},
    {.name = "tanh_grad",
     .body = "tensor y %[5,33] input\n"
             "tensor d_y %[5,33] input\n"
             "d_x %[5,33] = tanh_grad(y, d_y) @m backward\n"},
    {.name = "scale",
     .body = "tensor x %[5,33] input\n"
             "y %[5,33] = scale(x) {factor=0.3} @m forward\n"},
    {.name = "sigmoid_gate",
     .body = "tensor x %[5,33] input\ntensor gate %[5,33] input\n"
             "y %[5,33] = sigmoid_gate(x, gate) @m forward\n",
     .slack = 2},
    {.name = "sigmoid_gate_grad",
     .body = "tensor x %[5,33] input\ntensor gate %[5,33] input\ntensor d_y %[5,33] input\n"
             "d_x %[5,33], d_gate %[5,33] = sigmoid_gate_grad(x, gate, d_y) @m backward\n",
     .slack = 2},
    {.name = "sigmoid_gate_grad_of_one",
     .body = "tensor x %[5,33] input\ntensor gate %[5,33] input\ntensor d_y %[5,33] input\n"
             "-, d_gate %[5,33] = sigmoid_gate_grad(x, gate, d_y) @m backward\n"},
    {.name = "swiglu",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "s %[5,33] = swiglu(gate, up) @m forward\n"},
    // More than one block of a GPU.
    {.name = "swiglu_long",
     .body = "tensor gate %[3,701] input\n"
             "tensor up %[3,701] input\n"
             "s %[3,701] = swiglu(gate, up) @m forward\n"},
    {.name = "swiglu_grad",
     .body = "tensor gate %[5,33] input\n"
             "tensor up %[5,33] input\n"
             "tensor d_s %[5,33] input\n"
             "d_gate %[5,33], d_up %[5,33] = swiglu_grad(gate, up, d_s) @m backward\n"},
});

}  // namespace
}  // namespace plimsoll::harness
