// int8_dequantize: a weight from its 8-bit codes, right before the product that reads it.
#include "ops/linear/int8.h"

#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// codes i8 [out, in], absmax f32 [out] -> weight [out, in]. Attribute type (text): the weight's.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::int8_dequantize;
  const Tensor& codes = input_tensor(g, op, at::codes);
  const Tensor& absmax = input_tensor(g, op, at::absmax);
  require(codes.dtype == DType::i8 && codes.shape.rank() == 2, g, op,
          "int8_dequantize: codes are i8 [out, in]");
  require(absmax.dtype == DType::f32 && absmax.shape == Shape{codes.shape[0]}, g, op,
          "int8_dequantize: absmax is f32 [out]");
  return {{"", codes.shape, parse_dtype(op.attr_text("type"))}};
}

}  // namespace

const OpRule int8_dequantize_rule{.kind = OpKind::int8_dequantize, .infer = infer, .rematerialise = true};

}  // namespace plimsoll
