#include "ops/linear/nf4.h"
#include "ops/dynamic_map.h"

#include "harness/op_case.h"

namespace plimsoll::harness {
namespace {

Values bytes(size_t count) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>((i * 37 + 11) % 256);
  return values;
}

Values code_map() {
  const auto& code = signed_dynamic_map().value;
  return {code.begin(), code.end()};
}

[[maybe_unused]] const bool kNf4Cases = register_cases({
    // 6 blocks, the last one not full.
    {.name = "nf4_dequantize",
     .body = "tensor codes u8[5,35] frozen\n"
             "tensor absmax f32[6] frozen\n"
             "w %[5,70] = nf4_dequantize(codes, absmax) {type='%'} @s forward\n",
     .given = {{"codes", bytes(175)}}},
    // 300 blocks: more than one of the nested ones.
    {.name = "nf4_dequantize_nested",
     .body =
         "tensor codes u8[300,32] frozen\n"
         "tensor absmax u8[300] frozen\n"
         "tensor nested_absmax f32[2] frozen\n"
         "tensor map f32[256] frozen\n"
         "tensor offset f32[1] frozen\n"
         "w %[300,64] = nf4_dequantize(codes, absmax, nested_absmax, map, offset) {type='%'} @s forward\n",
     .given = {{"codes", bytes(9600)}, {"absmax", bytes(300)}, {"map", code_map()}}},
});

}  // namespace
}  // namespace plimsoll::harness
