// A weight of which each rank has a piece, whole for the ops that read it.
//
// Nothing is sent by the op itself, as by reduce_scatter: it copies the rank's piece to its place and clears the rest.
// Behind it the host lets the ranks exchange their pieces (OpHooks of runtime/executor.h).
#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rules.h"

namespace plimsoll {
namespace {

using at = operand::all_gather;

// piece -> whole, of any type. Attributes `piece`, `first` and `elements` as ops of updates have them
// (ops/optimizer/optimizer.h), and `whole`, the elements of all pieces together.
std::vector<OutputSpec> infer(const Graph& g, const Op& op) {
  const Tensor& piece = input_tensor(g, op, at::piece);
  const TensorId made = op.output(at::whole);
  const Shape whole = made >= 0 ? g.tensor(made).shape : piece.whole_shape();
  const int64_t first = op.attr_int("first"), elements = op.attr_int("elements");
  require(piece_of(op) > 0 && piece.shape.elements() == piece_of(op), g, op,
          "all_gather: a piece of another size");
  require(first >= 0 && first % piece_of(op) == 0 && elements > 0 && elements <= piece_of(op), g, op,
          "all_gather: a range that is no rank's");
  require(whole.elements() == op.attr_int("whole") && first + elements <= whole.elements(), g, op,
          "all_gather: a whole of another size");
  return {{"", whole, piece.dtype}};
}

Cost cost(const Graph& g, const Op& op) {
  const int64_t bytes = op.attr_int("whole") + op.attr_int("elements");
  return {0, static_cast<double>(bytes * size_of(input_tensor(g, op, at::piece).dtype))};
}

// Its curve is of the link: the bytes that a rank sends, its piece to each of the others.
Work work(const Graph& g, const Op& op) {
  const DType dtype = input_tensor(g, op, at::piece).dtype;
  const int64_t others = ceil_div(op.attr_int("whole"), piece_of(op)) - 1;
  const auto sent = static_cast<double>(others * piece_of(op) * size_of(dtype));
  return {.products = {}, .amount = sent, .at = sent, .dtype = dtype};
}

}  // namespace

const OpRule all_gather_rule{
    .kind = OpKind::all_gather, .infer = infer, .cost = cost, .work = work, .sliceable = true};

}  // namespace plimsoll
