#include <algorithm>
#include <iterator>

#include "autodiff/autodiff.h"
#include "graph/name_ending.h"
#include "graph/op_kind.h"
#include "ops/operands.h"
#include "ops/rule.h"
#include "passes/offload_parts.h"
#include "passes/train.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

// By tensor id, whether it is a gradient that the choice moves to where it is copied from; its space is set.
std::vector<char> move_gradients(Graph& graph, const OffloadChoice& choice, const OffloadContext& context) {
  std::vector<char> moved(graph.tensors().size());
  for (size_t i = 0; i < moved.size(); ++i) {
    const Tensor& tensor = graph.tensors()[i];
    if (tensor.role != Role::gradient || !choice.moves(tensor)) continue;
    const Space target = choice.gradients.of(tensor.block);
    graph.set_space(static_cast<TensorId>(i), target);
    moved[i] = context.transfers(target) ? 1 : 0;
  }
  return moved;
}

std::string square_name(const Tensor& gradient) {
  return gradient.name.substr(0, gradient.name.size() - gradient_name("").size()) + kGradSquareSuffix;
}

// The sum of squares outlives the program: the update adds all of them up.
void append_square(Graph& train, TensorId copy, const Tensor& gradient, const Op& writer) {
  Op square;
  square.kind = OpKind::grad_square;
  square.scope = writer.scope;
  square.stage = Stage::backward;
  square.block = writer.block;
  square.inputs = {copy};
  square.outputs = {train.add_tensor(
      {square_name(gradient), {1}, DType::f64, Role::metric, Space::device, gradient.block})};
  emit(train, std::move(square), "");
}

// The copies on the device of a program's moved gradients, each from its first to its last writer.
class GradientCopies {
 public:
  GradientCopies(Graph train, std::vector<char> moved, int64_t accumulation, bool squares)
      : train_(std::move(train)),
        moved_(std::move(moved)),
        ops_(std::move(train_.ops())),
        accumulation_(accumulation),
        squares_(squares),
        copies_(train_.tensors().size(), kNoTensor),
        last_writer_(train_.tensors().size()) {
    train_.ops().clear();
    for (size_t at = 0; at < ops_.size(); ++at)
      for (const TensorId id : ops_[at].outputs)
        if (id != kNoTensor) last_writer_[static_cast<size_t>(id)] = at;
  }

  Graph run() {
    for (size_t at = 0; at < ops_.size(); ++at) {
      Op& op = ops_[at];
      std::vector<TensorId> complete;
      for (TensorId& id : op.outputs) {
        if (id == kNoTensor || moved_[static_cast<size_t>(id)] == 0) continue;
        if (last_writer_[static_cast<size_t>(id)] == at) complete.push_back(id);
        id = copy_of(id, op);
      }
      train_.ops().push_back(std::move(op));
      if (complete.empty()) continue;
      const Op writer = train_.ops().back();
      for (const TensorId id : complete) {
        const TensorId copy = copies_[static_cast<size_t>(id)];
        if (squares_) append_square(train_, copy, Tensor(train_.tensor(id)), writer);
        append_store(train_, copy, id, 0, writer);
      }
    }
    return std::move(train_);
  }

 private:
  TensorId copy_of(TensorId id, const Op& writer) {
    TensorId& copy = copies_[static_cast<size_t>(id)];
    if (copy != kNoTensor) return copy;
    const Tensor& gradient = train_.tensor(id);
    static NameEnding ending(".copy");
    const Name name = ending.behind(gradient.name);
    if (accumulation_ > 1) return copy = append_fetch(train_, id, name, writer);
    return copy = train_.add_tensor(
               {name, gradient.shape, gradient.dtype, Role::activation, Space::device, gradient.block});
  }

  Graph train_;
  std::vector<char> moved_;  // by tensor
  std::vector<Op> ops_;
  int64_t accumulation_;
  bool squares_;
  std::vector<TensorId> copies_;     // by gradient
  std::vector<size_t> last_writer_;  // by tensor
};

// The gradient, or this rank's piece of it, which may be all that it has.
void fetch_for_square(Graph& update, Op& square) {
  TensorId& gradient = square.inputs[operand::grad_square::gradient];
  const int64_t all = update.tensor(gradient).shape.elements();
  const bool is_piece = update.tensor(gradient).whole.rank() > 0;
  const int64_t piece = square.attrs.contains("elements") && !is_piece ? piece_of(square) : 0;
  static NameEnding squared(".squared");
  const Name name = squared.behind(update.tensor(gradient).name);
  gradient = append_fetch(update, gradient, {0, piece > 0 ? piece : all}, name, square, piece);
  if (piece > 0) square.attrs["whole"] = all;
}

}  // namespace

Graph offload_gradients_of_train(Graph train, const OffloadChoice& choice, const OffloadContext& context,
                                 bool several_ranks) {
  std::vector<char> moved = move_gradients(train, choice, context);
  if (std::ranges::find(moved, 1) == moved.end()) return train;
  return GradientCopies(std::move(train), std::move(moved), context.accumulation, !several_ranks).run();
}

Graph offload_gradients_of_update(Graph update, const OffloadChoice& choice, const OffloadContext& context,
                                  bool several_ranks) {
  const std::vector<char> moved = move_gradients(update, choice, context);
  if (std::ranges::find(moved, 1) == moved.end()) return update;
  std::vector<Op> ops = std::move(update.ops());
  update.ops().clear();
  for (Op& op : ops) {
    const bool is_square = op.kind == OpKind::grad_square &&
                           moved[static_cast<size_t>(op.inputs[operand::grad_square::gradient])] != 0;
    if (is_square && !several_ranks) {
      update.set_role(op.outputs[operand::grad_square::square], Role::metric);
      continue;
    }
    if (is_square) fetch_for_square(update, op);
    update.ops().push_back(std::move(op));
  }
  return update;
}

}  // namespace plimsoll
