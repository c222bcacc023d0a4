// The optimizer's two ops. grad_norm: the norm of all gradients together and the factor that clips it. adamw:
// one weight's update, in place: PyTorch's AdamW (decoupled weight decay, bias correction), gradient times
// clip factor.
#include <algorithm>

#include "ops/adamw_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// step, gradients ... -> grad_norm f64 [2]: the norm before clipping, the clip factor min(1, max_norm / (norm
// + 1e-6)), as PyTorch's clip_grad_norm_ has it. Attribute max_norm (f64): 0 means no clipping (factor 1).
std::vector<OutputSpec> infer_norm(const Graph&, const Op&) { return {{"", {2}, DType::f64}}; }

// The partial sums of squares of one gradient at a time.
int64_t scratch_norm(const Graph& g, const Op& op, const DeviceDescription&) {
  int64_t largest = 0;
  for (size_t i = 1; i < op.inputs.size(); ++i)
    largest = std::max(largest, g.tensor(op.inputs[i]).shape.elements());
  return (largest + kSumOfSquaresBlock - 1) / kSumOfSquaresBlock * int64_t{sizeof(double)};
}

// step, grad_norm, gradient -> weight, m, v, master?; all in place. Learning rate, step number and seed come
// from the step values, the clip factor from grad_norm[1]. With a master copy (f32) the weight is bf16 and
// gets the master rounded to nearest. Attributes: beta1, beta2, eps, weight_decay (f64); stochastic (int) 1:
// what is bf16 of the weight (without master) and of the states is rounded stochastically, its random bits
// keyed by (seed, step, the weight's name, element). Rounding those to nearest would lose small updates for
// good, so that 0 is refused for them.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Shape& shape = input_tensor(g, op, 2).shape;
  const auto is_bf16 = [&](size_t i) {
    return op.has_output(i) && op.outputs[i] >= 0 && g.tensor(op.outputs[i]).dtype == DType::bf16;
  };
  const bool has_master = op.has_output(3);
  require(!has_master || (is_bf16(0) && !is_bf16(3)), g, op, "adamw: a master copy is f32, its weight bf16");
  require(is_bf16(1) == is_bf16(2), g, op, "adamw: the states differ in type");
  require(op.attr_int("stochastic") == 1 || (!is_bf16(1) && (has_master || !is_bf16(0))), g, op,
          "adamw: bf16 weights without master copy and bf16 states need stochastic rounding");
  return {{"", shape, DType::f32},
          {".m", shape, DType::f32},
          {".v", shape, DType::f32},
          {".master", shape, DType::f32}};
}

// Everything is read and written once, but the gradient and (with a master copy) the weight, which have one
// way.
Cost cost(const Graph& g, const Op& op) {
  Cost total{0, static_cast<double>(input_tensor(g, op, 2).bytes())};
  for (const TensorId id : op.outputs)
    if (id != kNoTensor) total.bytes += 2.0 * static_cast<double>(g.tensor(id).bytes());
  return total;
}

}  // namespace

const OpRule grad_norm_rule{.kind = OpKind::grad_norm, .infer = infer_norm, .scratch_bytes = scratch_norm};
const OpRule adamw_rule{.kind = OpKind::adamw, .infer = infer, .cost = cost, .updates = true};

}  // namespace plimsoll
