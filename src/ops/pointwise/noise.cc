// embedding_noise: what NEFTune adds to embeddings while a model trains.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], samples [T], positions [T], lengths [T], step -> y like x. Attribute alpha. Rows of a sequence of
// length S get u uniform within alpha / sqrt(S H), drawn from (seed, step, the scope's name, sample in the
// effective batch, position, feature); those of length 0 get none.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  using at = operand::embedding_noise;
  const Tensor& x = input_tensor(g, op, at::x);
  require(x.shape.rank() == 2, g, op, "embedding_noise: shapes");
  for (const size_t of_rows : {at::samples, at::positions, at::lengths})
    require(input_tensor(g, op, of_rows).shape == Shape{x.shape[0]}, g, op,
            "embedding_noise: a sample, a position and a length for each row");
  return {{"", x.shape, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  using at = operand::embedding_noise;
  if (ctx.wants(op.inputs[at::x])) ctx.add_gradient(op.inputs[at::x], ctx.gradient_of(op.outputs[at::y]));
}

}  // namespace

const OpRule embedding_noise_rule{.kind = OpKind::embedding_noise,
                                  .infer = infer,
                                  .gradient = gradient,
                                  .reuse = {{operand::embedding_noise::y, operand::embedding_noise::x}}};

}  // namespace plimsoll
