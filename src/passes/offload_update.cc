#include <algorithm>
#include <deque>
#include <mutex>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "graph/name_ending.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "passes/offload_parts.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

bool is_optimizer(const Op& op) {
  return op.stage == Stage::update && op.kind != OpKind::grad_square && op.kind != OpKind::grad_norm &&
         !is_transfer(op.kind);
}

// With a master copy the weight is only written; but what a skipped step does not write has to be stored as
// it was.
bool needs_output(const Graph& graph, const Op& op, size_t i) {
  if (i != 0 || may_skip(op)) return true;
  return std::none_of(op.outputs.begin(), op.outputs.end(),
                      [&](TensorId id) { return id != kNoTensor && graph.tensor(id).role == Role::master; });
}

// ".slice7". Programs by the hundred have the same slices.
NameEnding& slice_ending(int64_t slice) {
  static std::mutex mutex;
  static std::deque<NameEnding> endings;
  const std::lock_guard lock(mutex);
  while (std::ssize(endings) <= slice) endings.emplace_back(formatted(".slice{}", endings.size()));
  return endings[static_cast<size_t>(slice)];
}

class Slicing {
 public:
  Slicing(Graph program, int64_t slice_elements, const OffloadContext& context)
      : graph_(std::move(program)),
        ops_(std::move(graph_.ops())),
        slice_elements_(slice_elements),
        context_(context) {
    graph_.ops().clear();
  }

  Graph run() {
    for (Op& op : ops_) {
      if (is_optimizer(op) && has_moved(op))
        slice(op);
      else
        graph_.ops().push_back(std::move(op));
    }
    return std::move(graph_);
  }

 private:
  [[nodiscard]] bool is_moved(TensorId id) const {
    return id != kNoTensor && context_.transfers(graph_.tensor(id).space);
  }
  [[nodiscard]] bool has_moved(const Op& op) const {
    const auto moved = [&](TensorId id) { return is_moved(id); };
    return std::any_of(op.inputs.begin(), op.inputs.end(), moved) ||
           std::any_of(op.outputs.begin(), op.outputs.end(), moved);
  }

  void slice(const Op& op) {
    const int64_t all = graph_.tensor(op.outputs[kWeightOutput]).whole_shape().elements();
    const int64_t step = rule_of(op.kind).sliceable ? slice_elements_ : all;
    const int64_t piece = op.attrs.contains("elements") ? piece_of(op) : 0;
    if (piece > 0) return slice_piece(op, piece, all);
    for (int64_t first = 0; first < all; first += step)
      append_slice(op, {first, std::min(step, all - first)}, all);
  }

  // All ranks have the slices of the first: each begins within the last rank's piece too, which is shorter by less than
  // kPieceUnit for each rank.
  void slice_piece(const Op& op, int64_t piece, int64_t all) {
    const int64_t spare = kPieceUnit * ceil_div(all, piece);
    for (int64_t first = 0; first < piece;) {
      int64_t elements = std::min(slice_elements_, piece - first);
      if (piece - first - elements <= spare) elements = piece - first;
      append_slice(op, {first, elements}, all, piece);
      first += elements;
    }
  }

  // `piece`: the range is within the first rank's piece of so many elements; 0: ranks do not divide the weight.
  void append_slice(const Op& op, ElementRange range, int64_t all, int64_t piece = 0) {
    Op slice = op;
    for (TensorId& id : slice.inputs)
      if (is_moved(id)) id = fetch(op, id, range, all, piece);
    for (size_t i = 0; i < slice.outputs.size(); ++i) {
      TensorId& id = slice.outputs[i];
      if (is_moved(id))
        id = needs_output(graph_, op, i) ? fetch(op, id, range, all, piece) : add_copy(id, range);
    }
    if (range.elements < all) {
      slice.attrs["first"] = range.first;
      slice.attrs["elements"] = range.elements;
    }
    if (piece > 0) slice.attrs["whole"] = all;
    if (piece > range.elements) slice.attrs["slice"] = range.elements;
    emit(graph_, slice, "");
    for (size_t i = 0; i < slice.outputs.size(); ++i) {
      const TensorId offloaded = op.outputs[i];
      if (slice.outputs[i] != offloaded)
        append_store(graph_, slice.outputs[i], offloaded, part_of(offloaded, range, all).first, op,
                     shift_of(offloaded, piece));
    }
  }

  TensorId fetch(const Op& op, TensorId offloaded, ElementRange range, int64_t all, int64_t piece) {
    return append_fetch(graph_, offloaded, part_of(offloaded, range, all), copy_name(offloaded, range), op,
                        shift_of(offloaded, piece));
  }

  // A tensor that is a rank's piece itself has the same range at all ranks.
  [[nodiscard]] int64_t shift_of(TensorId offloaded, int64_t piece) const {
    return is_piece(offloaded) ? 0 : piece;
  }
  [[nodiscard]] bool is_piece(TensorId id) const { return graph_.tensor(id).is_piece(); }

  // A weight's copy that is only written.
  TensorId add_copy(TensorId offloaded, ElementRange range) {
    const Tensor& weight = graph_.tensor(offloaded);
    const Shape shape = range.elements == weight.shape.elements() ? weight.shape : Shape{range.elements};
    return graph_.add_tensor(
        {copy_name(offloaded, range), shape, weight.dtype, Role::activation, Space::device, weight.block});
  }

  [[nodiscard]] Name copy_name(TensorId offloaded, ElementRange range) const {
    return slice_ending(range.first / slice_elements_).behind(graph_.tensor(offloaded).name);
  }

  // The weight's `range` in an operand that may have one value for several of the weight's elements, as the
  // scales of 8-bit states do. Operands of ops that cannot be sliced are moved as a whole.
  [[nodiscard]] ElementRange part_of(TensorId operand, ElementRange range, int64_t all) const {
    const int64_t values = graph_.tensor(operand).shape.elements();
    if (range.elements == all) return {0, values};
    const int64_t block = ceil_div(all, is_piece(operand) ? graph_.tensor(operand).whole.elements() : values);
    check_internal(kSliceUnit % block == 0,
                   formatted("slice_updates: {} does not have one value for so many elements of its weight",
                             graph_.tensor(operand).name));
    return {range.first / block, ceil_div(range.elements, block)};
  }

  Graph graph_;
  std::vector<Op> ops_;
  int64_t slice_elements_;
  OffloadContext context_;
};

}  // namespace

Graph offload_states(Graph program, const OffloadChoice& choice) {
  for (size_t i = 0; i < program.tensors().size(); ++i) {
    const Tensor& tensor = program.tensors()[i];
    const bool state = tensor.role == Role::optimizer_state || tensor.role == Role::master;
    if (state && choice.moves(tensor))
      program.set_space(static_cast<TensorId>(i), choice.states.of(tensor.block));
  }
  return program;
}

Graph slice_updates(Graph program, const OffloadChoice& choice, const OffloadContext& context) {
  check_internal(choice.slice_elements > 0 && choice.slice_elements % kSliceUnit == 0,
                 formatted("slice_updates: slices of {} elements", choice.slice_elements));
  return Slicing(std::move(program), choice.slice_elements, context).run();
}

}  // namespace plimsoll
