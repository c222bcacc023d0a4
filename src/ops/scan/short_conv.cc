// short_conv: a causal convolution of each channel with `W` taps of its own within each sequence of the flat
// token axis, and a swish (fla's ShortConvolution):
//   s_t = sum_j weight[W - 1 - j] x_t-j,  y_t = s_t sigmoid(s_t),  x = 0 before every sequence.
// Nothing but the inputs is saved for the gradient, which makes s again.
// With `parents` sequences are segments of trees, before which stands what they continue.
// short_conv_cached: the same for generation, going on from the last W - 1 rows of x, which are updated in
// place; a sequence that begins (kv_length 0) finds them zero. Attributes: sequences, how many have such rows, 1 if
// absent; apart: each row of x continues a sequence of its own, else all continue the first.
#include "graph/op_kind.h"
#include "ops/cached_sequences.h"
#include "ops/rules.h"
#include "ops/scan/short_conv_kernels.h"

namespace plimsoll {
namespace {

int64_t taps_of(const Graph& g, const Op& op) {
  return input_tensor(g, op, operand::short_conv::weight).shape.last();
}

void require_shapes(const Graph& g, const Op& op) {
  using at = operand::short_conv;
  const Tensor& x = input_tensor(g, op, at::x);
  const Tensor& weight = input_tensor(g, op, at::weight);
  require(x.shape.rank() == 2 && weight.shape.rank() == 3, g, op, "short_conv: ranks");
  require(weight.shape == Shape{x.shape[1], 1, weight.shape.last()} && weight.shape.last() > 1 &&
              weight.shape.last() <= kMostConvTaps,
          g, op, "short_conv: taps");
}

// `at`: operand::short_conv, or that of its gradient.
template <class at>
void require_parents(const Graph& g, const Op& op) {
  require(!op.has_input(at::parents) ||
              input_tensor(g, op, at::parents).shape[0] + 1 == input_tensor(g, op, at::seq_starts).shape[0],
          g, op, "short_conv: a parent for each segment");
}

// x [T, D], weight [D, 1, W], seq_starts [B+1], step, parents [B]? -> y like x
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::short_conv;
  require_shapes(g, op);
  require_parents<operand::short_conv>(g, op);
  const Tensor& x = input_tensor(g, op, at::x);
  return {{"", x.shape, x.dtype}};
}

// x, weight, d_y, seq_starts, step, parents? -> d_x?, gradient of weight?
std::vector<OutputSpec> infer_grad(const Graph& g, const Op& op) {
  using at = operand::short_conv_grad;
  require_shapes(g, op);
  require_parents<operand::short_conv_grad>(g, op);
  const Tensor& x = input_tensor(g, op, at::x);
  require(input_tensor(g, op, at::d_y).shape == x.shape, g, op, "short_conv_grad: d_y");
  return {{"", x.shape, x.dtype},
          {".weight_grad", input_tensor(g, op, at::weight).shape, gradient_dtype(g, op, at::d_weight)}};
}

// x, weight, step -> y, rows [sequences * (W - 1), D] of x, which are read and updated in place
std::vector<OutputSpec> infer_cached(const Graph& g, const Op& op) {
  using at = operand::short_conv_cached;
  require_shapes(g, op);
  const Tensor& x = input_tensor(g, op, at::x);
  require(!continues_apart(op) || x.shape[0] <= cached_sequences(op), g, op, "short_conv_cached: sequences");
  return {{"", x.shape, x.dtype},
          {".rows", {cached_sequences(op) * (taps_of(g, op) - 1), x.shape[1]}, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::short_conv;
  const TensorId x = op.inputs[at::x];
  const TensorId weight = op.inputs[at::weight];
  const bool wants_x = ctx.wants(x);
  if (!wants_x && !ctx.wants(weight)) return;
  GradientContext::WeightGradient target{kNoTensor, 0};
  if (ctx.wants(weight)) target = ctx.weight_gradient(weight);
  Operands inputs{x, weight, ctx.gradient_of(op.outputs[at::y])};
  for (size_t i = at::seq_starts; i < op.inputs.size(); ++i) inputs.push_back(op.inputs[i]);
  const auto out = ctx.emit(OpKind::short_conv_grad, std::move(inputs), {{"accumulate", target.accumulate}},
                            {wants_x ? kNewTensor : kNoTensor, target.tensor},
                            "d_" + ctx.graph().tensor(op.outputs[at::y]).name);
  if (wants_x) ctx.add_gradient(x, out[operand::short_conv_grad::d_x]);
}

// On GPUs: the partial sums of the weight's gradient.
int64_t gpu_scratch_grad(const Graph& g, const Op& op, const DeviceDescription&) {
  using at = operand::short_conv_grad;
  if (!op.has_output(at::d_weight)) return 0;
  const int64_t blocks = (input_tensor(g, op, at::x).shape[0] + kConvRowsPerBlock - 1) / kConvRowsPerBlock;
  return blocks * input_tensor(g, op, at::weight).shape.elements() * int64_t{sizeof(float)};
}

}  // namespace

const OpRule short_conv_rule{
    .kind = OpKind::short_conv, .infer = infer, .gradient = gradient, .shortens = Shortens::rows};
const OpRule short_conv_grad_rule{.kind = OpKind::short_conv_grad,
                                  .infer = infer_grad,
                                  .gpu_scratch_bytes = gpu_scratch_grad,
                                  .launches = launches_of_gradients<operand::short_conv_grad>,
                                  .updates = true,
                                  .shortens = Shortens::rows};
const OpRule short_conv_cached_rule{.kind = OpKind::short_conv_cached, .infer = infer_cached};

}  // namespace plimsoll
