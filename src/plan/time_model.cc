#include "plan/time_model.h"

#include <algorithm>

#include "ops/rule.h"

namespace plimsoll {

double op_seconds(const Graph& graph, const Op& op, const DeviceRates& rates) {
  const Cost cost = cost_of(graph, op);
  const TensorId x = op.input(0);
  const bool bf16 = x != kNoTensor && graph.tensor(x).dtype == DType::bf16;
  return std::max(cost.flops / (bf16 ? rates.matmul_bf16 : rates.matmul_f32), cost.bytes / rates.bandwidth);
}

double predict_step_seconds(const std::vector<Graph>& programs, const Variant& variant,
                            const DeviceRates& rates) {
  double seconds = 0;
  for (const Graph& graph : programs) {
    double program = 0;
    for (const Op& op : graph.ops()) program += op_seconds(graph, op, rates);
    if (graph.name() == kTrainProgram) seconds += program * static_cast<double>(variant.accumulation);
    if (graph.name() == kUpdateProgram) seconds += program;
  }
  return seconds;
}

}  // namespace plimsoll
