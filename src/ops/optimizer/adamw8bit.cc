// adamw8bit: AdamW whose states are 8-bit codes with a scale for every 256 elements, bitsandbytes' AdamW8bit.
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/adamw8bit_kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

constexpr size_t kMaster = 5;
// Elements of the weight to one value of each output.
constexpr int64_t kBlocks[] = {1, 1, 1, kStateBlock, kStateBlock, 1};

// -> weight, m codes u8, v codes u8, m scales f32 [ceil(N / 256)], v scales, master?. Attributes: as adamw.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  require_precision(g, op, 1, 1, kMaster);
  for (size_t i = 1; i < kMaster; ++i)
    require(op.outputs[i] < 0 || g.tensor(op.outputs[i]).dtype == (kBlocks[i] == 1 ? DType::u8 : DType::f32),
            g, op, "adamw8bit: codes are u8, their scales f32");
  return {updated_output(g, op, 0, ""),
          updated_output(g, op, 1, ".m", DType::u8),
          updated_output(g, op, 2, ".v", DType::u8),
          updated_output(g, op, 3, ".m_scale", DType::f32, kStateBlock),
          updated_output(g, op, 4, ".v_scale", DType::f32, kStateBlock),
          updated_output(g, op, kMaster, kMasterSuffix)};
}

Cost cost(const Graph& g, const Op& op) {
  const ElementRange range = updated_range(g, op);
  Cost total{0, bytes_of_range(g, op.inputs[kGradientInput], range)};
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (op.has_output(i)) total.bytes += 2.0 * bytes_of_range(g, op.outputs[i], range, kBlocks[i]);
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
