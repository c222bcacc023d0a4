#include "ops/optimizer/optimizer.h"

#include <algorithm>

#include "base/units.h"
#include "graph/op_kind.h"
#include "ops/optimizer/pieces.h"

namespace plimsoll {
namespace {

int64_t attr_or(const Op& op, std::string_view name, int64_t otherwise) {
  return op.attrs.contains(name) ? op.attr_int(name) : otherwise;
}

// Ranks may divide what the op works on. Programs are asked by the hundred, and most ops are of layers.
bool may_have_piece(const Op& op) {
  return op.stage == Stage::update || is_transfer(op.kind) || op.kind == OpKind::grad_square ||
         op.kind == OpKind::all_gather || op.kind == OpKind::reduce_scatter;
}

bool is_of(DType dtype, const Graph& g, const Op& op, size_t output) {
  return op.has_output(output) && op.outputs[output] >= 0 && g.tensor(op.outputs[output]).dtype == dtype;
}
template <class at>
constexpr bool is_optimizer() {
  return size_t{at::step} == kStepInput && size_t{at::norm} == kNormInput &&
         size_t{at::gradient} == kGradientInput && size_t{at::weight} == kWeightOutput;
}
static_assert(is_optimizer<operand::adamw8bit>() && is_optimizer<operand::lion>() &&
              is_optimizer<operand::sgd>() && is_optimizer<operand::adafactor>());

bool is_bf16(const Graph& g, const Op& op, size_t output) { return is_of(DType::bf16, g, op, output); }

// The elements of the weight whose gradient the op reads.
int64_t whole_elements(const Graph& g, const Op& op) {
  if (op.attrs.contains("whole")) return op.attr_int("whole");
  const size_t gradient = op.kind == OpKind::grad_square      ? size_t{operand::grad_square::gradient}
                          : op.kind == OpKind::reduce_scatter ? size_t{operand::reduce_scatter::gradient}
                                                              : kGradientInput;
  return g.tensor(op.input(gradient)).shape.elements();
}

}  // namespace

int64_t piece_elements(int64_t elements, int64_t ranks) {
  if (ranks == 1 || elements < kPieceUnit * ranks * ranks) return 0;
  return round_up(ceil_div(elements, ranks), kPieceUnit);
}

int64_t piece_of(const Op& op) { return attr_or(op, "piece", 0); }

Graph for_rank(Graph program, int64_t rank) {
  for (Op& op : program.ops()) {
    const int64_t piece = piece_of(op);
    if (piece == 0 || !op.attrs.contains("elements")) continue;
    const int64_t first = rank * piece + op.attr_int("first");
    const int64_t most = op.attr_int("elements");
    op.attrs["first"] = first;
    op.attrs["elements"] = std::min(most, whole_elements(program, op) - first);
  }
  return program;
}

std::map<std::string, int64_t> updated_pieces(const Graph& program) {
  std::map<std::string, int64_t> pieces;
  for (const Op& op : program.ops()) {
    const bool updates =
        op.stage == Stage::update && op.kind != OpKind::grad_square && op.kind != OpKind::grad_norm;
    if (updates && !is_transfer(op.kind)) pieces[op.scope] = op.attrs.contains("elements") ? piece_of(op) : 0;
  }
  return pieces;
}

bool exchanges_between_ops(const Graph& program) {
  bool has_pieces = false, is_backward = false;
  for (const Op& op : program.ops()) {
    is_backward = is_backward || op.stage == Stage::backward;
    if (!may_have_piece(op) || piece_of(op) == 0) continue;
    has_pieces = true;
    if (op.attrs.contains("elements")) return true;
  }
  return has_pieces && is_backward;
}

bool is_scaled(const Op& op) { return attr_or(op, "scaled", 0) == 1; }

ElementRange updated_range(const Graph& g, const Op& op, size_t gradient) {
  const ElementRange range = {attr_or(op, "first", 0),
                              attr_or(op, "elements", input_tensor(g, op, gradient).shape.elements())};
  const int64_t piece = piece_of(op);
  require(piece % kPieceUnit == 0, g, op, "pieces that cut blocks of 256 elements");
  require(range.first >= 0 && range.first % (piece > 0 ? kPieceUnit : kSliceUnit) == 0 && range.elements > 0,
          g, op, "a slice that does not start at a multiple of 65536, or within a piece of 256");
  return range;
}

ElementRange range_in(const Graph& g, const Op& op, TensorId operand, ElementRange updated, int64_t block) {
  const int64_t held = g.tensor(operand).shape.elements();
  const int64_t elements = ceil_div(updated.elements, block);
  const int64_t piece = piece_of(op);
  if (held == elements || (piece > 0 && held == ceil_div(attr_or(op, "slice", piece), block)))
    return {0, elements};
  if (piece > 0 && held == piece / block) return {updated.first % piece / block, elements};
  const int64_t first = updated.first / block;
  require(first + elements <= held, g, op, "an operand does not hold the slice");
  return {first, elements};
}

OutputSpec updated_output(const Graph& g, const Op& op, size_t i, const char* suffix, DType dtype,
                          int64_t block) {
  const Shape& gradient = input_tensor(g, op, kGradientInput).shape;
  const Shape whole = block == 1 ? gradient : Shape{ceil_div(gradient.elements(), block)};
  if (op.output(i) < 0) return {suffix, whole, dtype};
  const Tensor& output = g.tensor(op.outputs[i]);
  if (!op.attrs.contains("elements")) return {suffix, whole, output.dtype};
  range_in(g, op, op.outputs[i], updated_range(g, op), block);
  return {suffix, output.shape, output.dtype};
}

void require_precision(const Graph& g, const Op& op, std::initializer_list<size_t> states, size_t master) {
  const bool has_master = op.has_output(master);
  const bool is_f16 = is_of(DType::f16, g, op, kWeightOutput);
  require(!has_master || ((is_bf16(g, op, kWeightOutput) || is_f16) && !is_bf16(g, op, master)), g, op,
          "a master copy is f32, its weight bf16 or f16");
  require(has_master || !is_f16, g, op, "f16 weights need a master copy");
  bool loses = is_bf16(g, op, kWeightOutput) && !has_master;
  for (const size_t state : states) {
    require(!op.has_output(state) || is_bf16(g, op, state) == is_bf16(g, op, *states.begin()), g, op,
            "the states differ in type");
    loses = loses || is_bf16(g, op, state);
  }
  require(!loses || op.attr_int("stochastic") == 1, g, op,
          "bf16 weights without master copy and bf16 states need stochastic rounding");
}

double bytes_of_range(const Graph& g, TensorId operand, ElementRange updated, int64_t block) {
  return static_cast<double>(ceil_div(updated.elements, block) * size_of(g.tensor(operand).dtype));
}

Cost cost_of_update(const Graph& g, const Op& op) {
  const ElementRange range = updated_range(g, op);
  Cost total{0, bytes_of_range(g, op.inputs[kGradientInput], range)};
  for (const TensorId id : op.outputs)
    if (id != kNoTensor) total.bytes += 2.0 * bytes_of_range(g, id, range);
  return total;
}

}  // namespace plimsoll
