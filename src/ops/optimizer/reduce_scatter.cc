// The part of a rank in what all ranks have added up of a gradient: that of a micro-step to those before it.
//
// Nothing is sent by the op itself. In front of it the host lets the ranks exchange their parts (OpHooks of
// runtime/executor.h), and the rank's own part of the gradient is the sum over all of them by then; what else is in the
// gradient counts no more. Other engines may send while others compute: this op is where a program says what.
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

using at = operand::reduce_scatter;

// gradient, step -> piece [attribute `piece`], of which the range is written: overwritten in the first micro-step, added
// to later. Attributes `piece`, `first` and `elements` as ops of updates have them (ops/optimizer/optimizer.h).
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const int64_t piece = piece_of(op);
  const ElementRange range = updated_range(g, op, at::gradient);
  require(piece > 0 && range.elements <= piece, g, op, "reduce_scatter: a range beyond a rank's piece");
  range_in(g, op, op.input(at::gradient), range);
  return {{"", {piece}, input_tensor(g, op, at::gradient).dtype}};
}

Cost cost(const Graph& g, const Op& op) {
  return {0, 3.0 * bytes_of_range(g, op.input(at::gradient), updated_range(g, op, at::gradient))};
}

// Its curve is of the link: the bytes that a rank sends, a piece to each of the others.
Work work(const Graph& g, const Op& op) {
  const Tensor& gradient = input_tensor(g, op, at::gradient);
  const int64_t others = ceil_div(gradient.shape.elements(), piece_of(op)) - 1;
  const auto sent = static_cast<double>(others * piece_of(op) * size_of(gradient.dtype));
  return {.products = {}, .amount = sent, .at = sent, .dtype = gradient.dtype};
}

}  // namespace

const OpRule reduce_scatter_rule{.kind = OpKind::reduce_scatter,
                                 .infer = infer,
                                 .cost = cost,
                                 .work = work,
                                 .updates = true,
                                 .sliceable = true};

}  // namespace plimsoll
