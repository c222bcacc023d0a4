// Gates and values that are halves of one tensor [T, 2M], or two tensors [T, M]: what the rules and kernels of swiglu and
// geglu share.
#pragma once

#include "ops/binding.h"
#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {

// The shape of what comes of gate and up. `at`: the operands of the op, or of its gradient.
template <class at>
Shape gated_shape(const Graph& g, const Op& op) {
  const Shape& gate = input_tensor(g, op, at::gate).shape;
  if (op.has_input(at::up)) {
    require(gate == input_tensor(g, op, at::up).shape, g, op, "gate and up differ in shape");
    return gate;
  }
  require(gate.rank() == 2 && gate[1] % 2 == 0, g, op, "gate and up in one tensor are halves");
  return {gate[0], gate[1] / 2};
}

// gate, up?, d_s -> d_gate, d_up?
template <class at>
std::vector<OutputSpec> gated_gradients(const Graph& g, const Op& op) {
  const Tensor& gate = input_tensor(g, op, at::gate);
  require(input_tensor(g, op, at::d_s).shape == gated_shape<at>(g, op), g, op, "the gradient's shape");
  return {{".gate", gate.shape, gate.dtype}, {".up", gate.shape, gate.dtype}};
}

// Emits the gradient of a gated op, with its attributes.
template <class at>
void give_gated(GradientContext& ctx, const Op& op, OpKind kind) {
  const TensorId gate = op.inputs[at::gate], up = op.input(at::up);
  if (!ctx.wants(gate) && !ctx.wants(up)) return;
  const auto out = ctx.emit(kind, {gate, up, ctx.gradient_of(op.outputs[at::s])}, op.attrs,
                            {kNewTensor, up == kNoTensor ? kNoTensor : kNewTensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::s]).name);
  using grad = operand::swiglu_grad;
  if (ctx.wants(gate)) ctx.add_gradient(gate, out[grad::d_gate]);
  if (ctx.wants(up)) ctx.add_gradient(up, out[grad::d_up]);
}

// The rows of a gated op: `width` values of gate, and as many of up.
template <class T>
struct GatedRows {
  const T *gate = nullptr, *up = nullptr;
  int64_t stride = 0;  // of gate and of up
  int64_t rows = 0, width = 0;
};
template <class T, class at>
GatedRows<T> gated_rows(const Binding& b) {
  const Shape& gate = b.input_tensor(at::gate).shape;
  const bool halves = !b.op().has_input(at::up);
  const int64_t width = halves ? gate.last() / 2 : gate.last();
  const T* const from = b.input<T>(at::gate);
  return {from, halves ? from + width : b.input<T>(at::up), gate.last(), gate.rows(), width};
}
// The same of the gradients.
template <class T, class at>
T* gated_d_up(const Binding& b, int64_t width) {
  return b.op().has_input(at::up) ? b.output<T>(at::d_up) : b.output<T>(at::d_gate) + width;
}

}  // namespace plimsoll
