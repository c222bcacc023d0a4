// nf4_dequantize: a weight from its 4-bit codes, right before the product that reads it.
#include "ops/linear/nf4.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// bitsandbytes looks codes up in a table over this many equal steps of [-1, 1]; what lies between two steps
// goes to the nearer one first.
constexpr float kSteps = 65535.0F;

// codes u8 [out, in / 2], absmax f32 [blocks] -> weight [out, in]; or codes, absmax u8 [blocks],
// nested_absmax f32 [nested blocks], nested_quant_map f32 [256], nested_offset f32 [1]. Attribute type
// (text): the weight's, f32 or bf16.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::nf4_dequantize;
  const Tensor& codes = input_tensor(g, op, at::codes);
  const Tensor& absmax = input_tensor(g, op, at::absmax);
  require(codes.dtype == DType::u8 && codes.shape.rank() == 2, g, op,
          "nf4_dequantize: codes are u8 [out, in/2]");
  const int64_t blocks = nf4_blocks(2 * codes.shape.elements());
  const bool nested = op.has_input(at::nested_absmax);
  require(absmax.shape == Shape{blocks} && absmax.dtype == (nested ? DType::u8 : DType::f32), g, op,
          "nf4_dequantize: absmax");
  if (nested) {
    require(input_tensor(g, op, at::nested_absmax).shape == Shape{nf4_nested_blocks(blocks)}, g, op,
            "nf4_dequantize: nested_absmax");
    require(input_tensor(g, op, at::nested_quant_map).shape == Shape{256}, g, op,
            "nf4_dequantize: nested_quant_map");
    require(input_tensor(g, op, at::nested_offset).shape == Shape{1}, g, op, "nf4_dequantize: nested_offset");
  }
  return {{"", {codes.shape[0], 2 * codes.shape[1]}, parse_dtype(op.attr_text("type"))}};
}

uint8_t nearest_code(float value, std::span<const float> middles) {
  const float clamped = std::clamp(value, -1.0F, 1.0F);
  const auto step = static_cast<int>((clamped + 1.0F) * 0.5F * kSteps + 0.5F);
  const float on_grid = -1.0F + 2.0F * static_cast<float>(step) / kSteps;
  return static_cast<uint8_t>(std::lower_bound(middles.begin(), middles.end(), on_grid) - middles.begin());
}

}  // namespace

float nest_scales(std::span<const float> scales, std::span<const float> map, std::span<uint8_t> codes,
                  std::span<float> absmax) {
  std::array<float, 255> middles{};
  for (size_t i = 0; i < middles.size(); ++i) middles[i] = 0.5F * (map[i] + map[i + 1]);
  const double sum = std::accumulate(scales.begin(), scales.end(), 0.0);
  const auto offset = static_cast<float>(sum / static_cast<double>(scales.size()));
  constexpr auto kBlock = static_cast<size_t>(kNf4NestedBlock);
  for (size_t begin = 0; begin < scales.size(); begin += kBlock) {
    const std::span<const float> block = scales.subspan(begin, std::min(kBlock, scales.size() - begin));
    float largest = 0;
    for (const float scale : block) largest = std::max(largest, std::fabs(scale - offset));
    absmax[begin / kBlock] = largest;
    // A block of equal scales gets bitsandbytes' code 0, which times an absmax of 0 is 0.
    const float inverse = largest == 0 ? 0.0F : 1.0F / largest;
    for (size_t i = 0; i < block.size(); ++i)
      codes[begin + i] = largest == 0 ? uint8_t{0} : nearest_code((block[i] - offset) * inverse, middles);
  }
  return offset;
}

void unnest_scales(std::span<const uint8_t> codes, std::span<const float> absmax, std::span<const float> map,
                   float offset, std::span<float> scales) {
  for (size_t i = 0; i < codes.size(); ++i) {
    const float scaled = map[codes[i]] * absmax[i / static_cast<size_t>(kNf4NestedBlock)];
    scales[i] = scaled + offset;
  }
}

const OpRule nf4_dequantize_rule{.kind = OpKind::nf4_dequantize, .infer = infer, .rematerialise = true};

}  // namespace plimsoll
