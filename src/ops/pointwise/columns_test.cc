// split_columns, join_columns.
#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

[[maybe_unused]] const bool kColumnCases = register_cases({
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
});

}  // namespace
}  // namespace plimsoll::harness
