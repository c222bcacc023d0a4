#include <algorithm>
#include <iterator>

#include "autodiff/autodiff.h"
#include "ops/rule.h"
#include "passes/offload.h"
#include "passes/train.h"
#include "passes/transfers.h"

namespace plimsoll {
namespace {

bool is_moved(const Tensor& tensor) { return tensor.role == Role::gradient && worth_moving(tensor); }

std::string square_name(const Tensor& gradient) {
  return gradient.name.substr(0, gradient.name.size() - gradient_name("").size()) + kGradSquareSuffix;
}

// The sum of squares outlives the program: the update adds all of them up.
void append_square(Graph& train, TensorId copy, const Tensor& gradient, const Op& writer) {
  Op square;
  square.kind = OpKind::grad_square;
  square.scope = writer.scope;
  square.stage = Stage::backward;
  square.inputs = {copy};
  square.outputs = {train.add_tensor({square_name(gradient), {1}, DType::f64, Role::metric})};
  emit(train, std::move(square), "");
}

// The copies on the device of a program's moved gradients, each from its first to its last writer.
class GradientCopies {
 public:
  GradientCopies(Graph train, int64_t accumulation)
      : train_(std::move(train)),
        ops_(std::move(train_.ops())),
        accumulation_(accumulation),
        copies_(train_.tensors().size(), kNoTensor),
        last_writer_(train_.tensors().size()) {
    train_.ops().clear();
    for (size_t at = 0; at < ops_.size(); ++at)
      for (const TensorId id : ops_[at].outputs)
        if (id != kNoTensor) last_writer_[static_cast<size_t>(id)] = at;
  }

  Graph run() {
    for (size_t at = 0; at < ops_.size(); ++at) {
      Op op = ops_[at];
      std::vector<TensorId> complete;
      for (TensorId& id : op.outputs) {
        if (id == kNoTensor || !is_moved(train_.tensor(id))) continue;
        if (last_writer_[static_cast<size_t>(id)] == at) complete.push_back(id);
        id = copy_of(id, op);
      }
      train_.ops().push_back(std::move(op));
      for (const TensorId id : complete) {
        const TensorId copy = copies_[static_cast<size_t>(id)];
        append_square(train_, copy, Tensor(train_.tensor(id)), ops_[at]);
        append_store(train_, copy, id, 0, ops_[at]);
      }
    }
    return std::move(train_);
  }

 private:
  TensorId copy_of(TensorId id, const Op& writer) {
    TensorId& copy = copies_[static_cast<size_t>(id)];
    if (copy != kNoTensor) return copy;
    Tensor tensor = train_.tensor(id);
    const std::string name = tensor.name + ".copy";
    if (accumulation_ > 1) return copy = append_fetch(train_, id, name, writer);
    tensor.name = name;
    tensor.role = Role::activation;
    tensor.space = Space::device;
    return copy = train_.add_tensor(std::move(tensor));
  }

  Graph train_;
  std::vector<Op> ops_;
  int64_t accumulation_;
  std::vector<TensorId> copies_;     // by gradient
  std::vector<size_t> last_writer_;  // by tensor
};

void set_space_of_moved(Graph& graph, Space space) {
  for (size_t i = 0; i < graph.tensors().size(); ++i)
    if (is_moved(graph.tensors()[i])) graph.set_space(static_cast<TensorId>(i), space);
}

}  // namespace

Graph offload_gradients_of_train(Graph train, Space space, const OffloadContext& context) {
  set_space_of_moved(train, space);
  if (!context.transfers(space)) return train;
  return GradientCopies(std::move(train), context.accumulation).run();
}

Graph offload_gradients_of_update(Graph update, Space space, const OffloadContext& context) {
  set_space_of_moved(update, space);
  if (!context.transfers(space)) return update;
  std::vector<Op> ops = std::move(update.ops());
  update.ops().clear();
  for (Op& op : ops) {
    if (op.kind == OpKind::grad_square && is_moved(update.tensor(op.inputs[0])))
      update.set_role(op.outputs[0], Role::metric);
    else
      update.ops().push_back(std::move(op));
  }
  return update;
}

}  // namespace plimsoll
