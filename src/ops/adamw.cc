// The optimizer's two ops. grad_norm: the norm of all gradients together and the factor that clips it. adamw:
// one weight's update, in place: PyTorch's AdamW (decoupled weight decay, bias correction), gradient times
// clip factor.
#include <algorithm>

#include "ops/rules.h"

namespace plimsoll {
namespace {

// step, gradients ... -> grad_norm f64 [2]: the norm before clipping, the clip factor
std::vector<OutputSpec> infer_norm(const Graph&, const Op&) { return {{"", {2}, DType::f64}}; }

// Partial sums of squares over fixed blocks of elements. Must equal what adamw_cpu.cc uses.
constexpr int64_t kElementsPerBlock = 65536;

int64_t scratch_norm(const Graph& g, const Op& op, const DeviceDescription&) {
  int64_t largest = 0;
  for (size_t i = 1; i < op.inputs.size(); ++i)
    largest = std::max(largest, g.tensor(op.inputs[i]).shape.elements());
  return (largest + kElementsPerBlock - 1) / kElementsPerBlock * 8;
}

// step, grad_norm, gradient -> weight, m, v, master?; all in place
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Shape& shape = input_tensor(g, op, 2).shape;
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
const OpRule adamw_rule{.kind = OpKind::adamw, .infer = infer, .cost = cost};

}  // namespace plimsoll
