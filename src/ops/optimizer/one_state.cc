// Optimizers with at most one state; ops/optimizer/optimizer.h says what all optimizers' ops have in common.
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// -> weight, m, master?. Attributes: beta1, beta2, weight_decay (decoupled) (f64), stochastic (int).
std::vector<OutputSpec> infer_lion(const Graph& g, const Op& op) {
  using at = operand::lion;
  require_precision(g, op, {at::m}, at::master);
  return {updated_output(g, op, at::weight, ""), updated_output(g, op, at::m, ".m"),
          updated_output(g, op, at::master, kMasterSuffix)};
}

// -> weight, momentum buffer?, master?. Attributes: momentum, weight_decay (an L2 term of the gradient, as
// PyTorch has it) (f64), stochastic (int). Without momentum there is no buffer.
std::vector<OutputSpec> infer_sgd(const Graph& g, const Op& op) {
  using at = operand::sgd;
  require_precision(g, op, {at::momentum}, at::master);
  require(op.has_output(at::momentum) == (op.attr_float("momentum") != 0.0), g, op,
          "sgd: momentum needs its buffer");
  return {updated_output(g, op, at::weight, ""), updated_output(g, op, at::momentum, ".buffer"),
          updated_output(g, op, at::master, kMasterSuffix)};
}

}  // namespace

const OpRule lion_rule{.kind = OpKind::lion,
                       .infer = infer_lion,
                       .cost = cost_of_update,
                       .updates = true,
                       .may_skip = is_scaled,
                       .sliceable = true};
const OpRule sgd_rule{.kind = OpKind::sgd,
                      .infer = infer_sgd,
                      .cost = cost_of_update,
                      .updates = true,
                      .may_skip = is_scaled,
                      .sliceable = true};

}  // namespace plimsoll
