// The norm of all gradients together and the factor that clips it, in two parts: grad_square looks at one
// gradient, which may go once it was seen; grad_norm adds up.
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/grad_norm_kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

using at = operand::grad_square;

// gradient -> square f64 [1], the sum of its squares. Attributes `first`, `elements`
// (ops/optimizer/optimizer.h): a slice with first > 0 adds to what the slices before it gave, in the order of
// the whole, so with its bits.
//
// Attribute `piece`: the square has a sum for the piece of each rank. With `first` and `elements` the op forms
// that of one rank, and leaves the others to who knows them; else all of them, with the same bits.
std::vector<OutputSpec> infer_square(const Graph& g, const Op& op) {
  range_in(g, op, op.input(at::gradient), updated_range(g, op, at::gradient));
  const int64_t piece = piece_of(op);
  const int64_t all =
      op.attrs.contains("whole") ? op.attr_int("whole") : input_tensor(g, op, at::gradient).shape.elements();
  const int64_t sums = piece == 0 ? 1 : ceil_div(all, piece);
  return {{"", {sums}, DType::f64}};
}

Cost cost_square(const Graph& g, const Op& op) {
  return {0, bytes_of_range(g, op.input(at::gradient), updated_range(g, op, at::gradient))};
}

// The partial sums.
int64_t scratch_square(const Graph& g, const Op& op, const DeviceDescription&) {
  return ceil_div(updated_range(g, op, at::gradient).elements, kSumOfSquaresBlock) * int64_t{sizeof(double)};
}

// step, squares ... -> grad_norm f64 [2]: the norm before clipping, the clip factor min(1, max_norm / (norm
// + 1e-6)), as PyTorch's clip_grad_norm_ has it. Attribute max_norm (f64): 0 means no clipping (factor 1).
// Attribute scaled (int; absent: 0) 1: gradients are StepValue::gradient_scale times what they should be; the
// norm is of what they should be, the factor takes the scale off, and is NaN where they overflowed.
std::vector<OutputSpec> infer_norm(const Graph& g, const Op& op) {
  for (size_t i = operand::grad_norm::squares; i < op.inputs.size(); ++i)
    require(input_tensor(g, op, i).dtype == DType::f64, g, op, "grad_norm: an input is no sum of squares");
  return {{"", {2}, DType::f64}};
}

// Two for each piece of which there is a sum.
int64_t launches_square(const Graph& g, const Op& op, bool) {
  const int64_t piece = piece_of(op);
  return piece == 0 ? 2 : 2 * ceil_div(updated_range(g, op, at::gradient).elements, piece);
}
int64_t launches_norm(const Graph& g, const Op& op, bool) {
  int64_t squares = 0;
  for (size_t i = operand::grad_norm::squares; i < op.inputs.size(); ++i)
    squares += input_tensor(g, op, i).shape.elements();
  return ceil_div(squares, kSquaresOfLaunch);
}

}  // namespace

const OpRule grad_square_rule{.kind = OpKind::grad_square,
                              .infer = infer_square,
                              .cost = cost_square,
                              .scratch_bytes = scratch_square,
                              .gpu_scratch_bytes = scratch_square,
                              .launches = launches_square,
                              .updates = true,
                              .sliceable = true};
const OpRule grad_norm_rule{.kind = OpKind::grad_norm, .infer = infer_norm, .launches = launches_norm};

}  // namespace plimsoll
