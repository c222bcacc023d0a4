// adamw: PyTorch's AdamW (decoupled weight decay, bias correction), gradient times clip factor.
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// step, grad_norm?, gradient -> weight, m, v, master?; all in place, whole or a slice
// (ops/optimizer/optimizer.h). Learning rate, step number and seed come from the step values, the clip factor
// from grad_norm[1]. With a master copy (f32) the weight is bf16 and gets the master rounded to nearest.
// Attributes: beta1, beta2, eps, weight_decay (f64), stochastic (int); random bits are keyed by (seed, step,
// the weight's name, element).
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::adamw;
  require_precision(g, op, {at::m, at::v}, at::master);
  return {updated_output(g, op, at::weight, ""), updated_output(g, op, at::m, ".m"),
          updated_output(g, op, at::v, ".v"), updated_output(g, op, at::master, kMasterSuffix)};
}

}  // namespace

const OpRule adamw_rule{.kind = OpKind::adamw,
                        .infer = infer,
                        .cost = cost_of_update,
                        .updates = true,
                        .may_skip = is_scaled,
                        .sliceable = true};

}  // namespace plimsoll
