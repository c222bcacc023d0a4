// adamw8bit: AdamW whose states are 8-bit codes with a scale for every 256 elements, bitsandbytes' AdamW8bit.
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/adamw8bit_kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

using at = operand::adamw8bit;

// Elements of the weight to one value of an output.
int64_t block_of(size_t output) { return output == at::m_scale || output == at::v_scale ? kStateBlock : 1; }

// -> weight, m codes u8, v codes u8, m scales f32 [ceil(N / 256)], v scales, master?. Attributes: as adamw.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  require_precision(g, op, {}, at::master);
  for (const size_t state : {at::m, at::v, at::m_scale, at::v_scale})
    require(op.outputs[state] < 0 ||
                g.tensor(op.outputs[state]).dtype == (block_of(state) == 1 ? DType::u8 : DType::f32),
            g, op, "adamw8bit: codes are u8, their scales f32");
  return {updated_output(g, op, at::weight, ""),
          updated_output(g, op, at::m, ".m", DType::u8),
          updated_output(g, op, at::v, ".v", DType::u8),
          updated_output(g, op, at::m_scale, ".m_scale", DType::f32, kStateBlock),
          updated_output(g, op, at::v_scale, ".v_scale", DType::f32, kStateBlock),
          updated_output(g, op, at::master, kMasterSuffix)};
}

Cost cost(const Graph& g, const Op& op) {
  const ElementRange range = updated_range(g, op);
  Cost total{0, bytes_of_range(g, op.inputs[kGradientInput], range)};
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (op.has_output(i)) total.bytes += 2.0 * bytes_of_range(g, op.outputs[i], range, block_of(i));
  return total;
}

}  // namespace

const OpRule adamw8bit_rule{.kind = OpKind::adamw8bit,
                            .infer = infer,
                            .cost = cost,
                            .updates = true,
                            .may_skip = is_scaled,
                            .sliceable = true};

}  // namespace plimsoll
