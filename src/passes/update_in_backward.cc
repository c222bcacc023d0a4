#include "passes/update_in_backward.h"

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/operands.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

// Ids in `train` of the tensors of `update`, which are added where they are missing.
std::vector<TensorId> tensors_of(Graph& train, const Graph& update) {
  std::vector<TensorId> ids;
  for (const Tensor& tensor : update.tensors()) {
    const TensorId found = train.find(tensor.name);
    ids.push_back(found != kNoTensor ? found : train.add_tensor(tensor));
  }
  return ids;
}

void rename(Operands& operands, const std::vector<TensorId>& ids) {
  for (TensorId& id : operands)
    if (id != kNoTensor) id = ids[static_cast<size_t>(id)];
}

// By tensor id: the last op that touches it, 0 where none does.
std::vector<size_t> find_last_uses(const Graph& graph) {
  std::vector<size_t> last(graph.tensors().size());
  for (size_t at = 0; at < graph.ops().size(); ++at) {
    for (const TensorId id : graph.ops()[at].inputs)
      if (id != kNoTensor) last[static_cast<size_t>(id)] = at;
    for (const TensorId id : graph.ops()[at].outputs)
      if (id != kNoTensor) last[static_cast<size_t>(id)] = at;
  }
  return last;
}

}  // namespace

Graph update_in_backward(Graph train, const Graph& update) {
  const std::vector<TensorId> ids = tensors_of(train, update);
  const std::vector<size_t> last_use = find_last_uses(train);
  std::vector<std::vector<Op>> after(train.ops().size());
  std::vector<Op> at_end;
  for (Op op : update.ops()) {
    check_internal(!may_skip(op), "update_in_backward: whether gradients overflowed is known too late");
    rename(op.inputs, ids);
    rename(op.outputs, ids);
    if (op.kind == OpKind::grad_norm) {
      check_internal(op.attr_float("max_norm") == 0, "update_in_backward: gradients are clipped");
      at_end.push_back(std::move(op));
    } else if (op.kind == OpKind::grad_square) {
      op.stage = Stage::backward;
      after[last_use[static_cast<size_t>(op.inputs[operand::grad_square::gradient])]].push_back(
          std::move(op));
    } else {
      op.inputs[kNormInput] = kNoTensor;
      size_t at = last_use[static_cast<size_t>(op.inputs[kGradientInput])];
      for (const TensorId id : op.outputs)
        if (id != kNoTensor) at = std::max(at, last_use[static_cast<size_t>(id)]);
      after[at].push_back(std::move(op));
    }
  }
  std::vector<Op> ops = std::move(train.ops());
  train.ops().clear();
  for (size_t at = 0; at < ops.size(); ++at) {
    train.ops().push_back(std::move(ops[at]));
    for (Op& op : after[at]) train.ops().push_back(std::move(op));
  }
  for (Op& op : at_end) train.ops().push_back(std::move(op));
  for (size_t i = 0; i < train.tensors().size(); ++i)
    if (train.tensors()[i].role == Role::gradient) train.set_role(static_cast<TensorId>(i), Role::activation);
  return train;
}

}  // namespace plimsoll
