// embedding_noise: what NEFTune adds to embeddings while a model trains.
#include "graph/op_kind.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

// x [T, H], samples [T], positions [T], lengths [T], step -> y like x. Attribute alpha. Rows of a sequence of
// length S get u uniform within alpha / sqrt(S H), drawn from (seed, step, the scope's name, sample in the
// effective batch, position, feature); those of length 0 get none.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& x = input_tensor(g, op, 0);
  require(x.shape.rank() == 2, g, op, "embedding_noise: shapes");
  for (const size_t of_rows : {1, 2, 3})
    require(input_tensor(g, op, of_rows).shape == Shape{x.shape[0]}, g, op,
            "embedding_noise: a sample, a position and a length for each row");
  return {{"", x.shape, x.dtype}};
}

void gradient(GradientContext& ctx, const Op& op) {
  if (ctx.wants(op.inputs[0])) ctx.add_gradient(op.inputs[0], ctx.gradient_of(op.outputs[0]));
}

}  // namespace

const OpRule embedding_noise_rule{
    .kind = OpKind::embedding_noise, .infer = infer, .gradient = gradient, .reuse = {{0, 0}}};

}  // namespace plimsoll
