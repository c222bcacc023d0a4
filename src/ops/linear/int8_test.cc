#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

Values codes_of(size_t count) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>((i * 37 + 11) % 255) - 127.0;
  return values;
}

[[maybe_unused]] const bool kInt8Cases = register_cases({
    // Rows that end within a vector, and within what a GPU's thread takes.
    {.name = "int8_dequantize",
     .body = "tensor codes i8[5,35] frozen\n"
             "tensor absmax f32[5] frozen\n"
             "w %[5,35] = int8_dequantize(codes, absmax) {type='%'} @s forward\n",
     .given = {{"codes", codes_of(175)}}},
    // Rows shorter than that.
    {.name = "int8_dequantize_narrow",
     .body = "tensor codes i8[9,3] frozen\n"
             "tensor absmax f32[9] frozen\n"
             "w %[9,3] = int8_dequantize(codes, absmax) {type='%'} @s forward\n",
     .given = {{"codes", codes_of(27)}}},
    {.name = "int8_dequantize_blocks",
     .body = "tensor codes i8[40,64] frozen\n"
             "tensor absmax f32[40] frozen\n"
             "w %[40,64] = int8_dequantize(codes, absmax) {type='%'} @s forward\n",
     .given = {{"codes", codes_of(2560)}}},
});

}  // namespace
}  // namespace plimsoll::harness
