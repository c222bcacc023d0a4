// delta_gate: the decays and strengths of the delta rule, from two logits per head and token:
//   g = -e^a_log softplus(a + dt_bias) in f32,   beta = sigmoid(b) rounded to b's type.
// The gradient makes both again. Its attributes `accumulate` and `accumulate_bias` say how the gradients of
// a_log and dt_bias are written.
#include "graph/op_kind.h"
#include "ops/delta/delta_gate_kernels.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

void require_shapes(const Graph& g, const Op& op) {
  using at = operand::delta_gate;
  const Tensor& a = input_tensor(g, op, at::a);
  const Tensor& b = input_tensor(g, op, at::b);
  const Tensor& a_log = input_tensor(g, op, at::a_log);
  const Tensor& dt_bias = input_tensor(g, op, at::dt_bias);
  require(a.shape.rank() == 2 && a.shape == b.shape && a.dtype == b.dtype, g, op, "delta_gate: logits");
  require(a_log.shape == Shape{a.shape[1]} && dt_bias.shape == a_log.shape && a_log.dtype == dt_bias.dtype, g,
          op, "delta_gate: weights");
}

// -> f32 g and beta like a
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::delta_gate;
  require_shapes(g, op);
  const Shape& shape = input_tensor(g, op, at::a).shape;
  return {{".g", shape, DType::f32}, {".beta", shape, DType::f32}};
}

// -> d_a?, d_b?, gradients of a_log? and dt_bias?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::delta_gate_grad;
  require_shapes(g, op);
  const Tensor& a = input_tensor(g, op, at::a);
  const Shape& weight = input_tensor(g, op, at::a_log).shape;
  for (const size_t i : {at::d_g, at::d_beta}) {
    const Tensor& gradient = g.tensor(op.inputs[i]);
    require(gradient.shape == a.shape && gradient.dtype == DType::f32, g, op, "delta_gate_grad: gradients");
  }
  return {{".a", a.shape, a.dtype},
          {".b", a.shape, a.dtype},
          {".a_log_grad", weight, gradient_dtype(g, op, at::d_a_log)},
          {".dt_bias_grad", weight, gradient_dtype(g, op, at::d_dt_bias)}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::delta_gate;
  using grad = operand::delta_gate_grad;
  const auto wants = [&](size_t input) { return ctx.wants(op.inputs[input]); };
  if (!wants(at::a) && !wants(at::b) && !wants(at::a_log) && !wants(at::dt_bias)) return;
  const auto target = [&](size_t input) {
    return wants(input) ? ctx.weight_gradient(op.inputs[input])
                        : GradientContext::WeightGradient{kNoTensor, 0};
  };
  const auto a_log = target(at::a_log), dt_bias = target(at::dt_bias);
  Operands inputs = op.inputs;
  for (const TensorId out : op.outputs) inputs.push_back(ctx.gradient_of(out));
  inputs.push_back(ctx.step());
  const auto out = ctx.emit(OpKind::delta_gate_grad, std::move(inputs),
                            {{"accumulate", a_log.accumulate}, {"accumulate_bias", dt_bias.accumulate}},
                            {wants(at::a) ? kNewTensor : kNoTensor, wants(at::b) ? kNewTensor : kNoTensor,
                             a_log.tensor, dt_bias.tensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::g]).name);
  if (wants(at::a)) ctx.add_gradient(op.inputs[at::a], out[grad::d_a]);
  if (wants(at::b)) ctx.add_gradient(op.inputs[at::b], out[grad::d_b]);
}

// The partial sums of the weights' gradients.
int64_t scratch_grad(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::delta_gate_grad;
  if (!op.has_output(at::d_a_log) && !op.has_output(at::d_dt_bias)) return 0;
  const Shape& shape = input_tensor(g, op, at::a).shape;
  return 2 * delta_gate_blocks(shape[0]) * shape[1] * int64_t{sizeof(float)};
}

// On a GPU: gradients of logits with parts of the weights', then each weight's sums.
int64_t launches_grad(const Graph&, const Op& op, bool) {
  using at = operand::delta_gate_grad;
  return 1 + (op.has_output(at::d_a_log) ? 1 : 0) + (op.has_output(at::d_dt_bias) ? 1 : 0);
}

}  // namespace

const OpRule delta_gate_rule{.kind = OpKind::delta_gate, .infer = infer, .gradient = gradient};
const OpRule delta_gate_grad_rule{.kind = OpKind::delta_gate_grad,
                                  .infer = infer_grad,
                                  .scratch_bytes = scratch_grad,
                                  .gpu_scratch_bytes = scratch_grad,
                                  .reuse = {{operand::delta_gate_grad::d_a, operand::delta_gate_grad::a},
                                            {operand::delta_gate_grad::d_b, operand::delta_gate_grad::b}},
                                  .launches = launches_grad,
                                  .updates = true};

}  // namespace plimsoll
