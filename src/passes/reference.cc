#include "passes/reference.h"

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/operands.h"

namespace plimsoll {
namespace {

constexpr const char* kPrefix = "reference.";

class ReferencePass {
 public:
  explicit ReferencePass(const Graph& forward)
      : result_(forward), twin_(forward.tensors().size(), kNoTensor) {}

  Graph run() {
    const std::vector<Op> ops = std::move(result_.ops());
    result_.ops().clear();
    check_internal(!ops.empty() && ops.back().kind == OpKind::preference_loss &&
                       !ops.back().has_input(operand::preference_loss::reference),
                   "add_reference: the graph does not end with a preference loss that has none");
    Op loss = ops.back();
    for (size_t begin = 0; begin + 1 < ops.size();) {
      size_t end = begin;
      while (end + 1 < ops.size() && ops[end].block == ops[begin].block) ++end;
      for (size_t at = begin; at < end; ++at) repeat(ops[at]);
      result_.ops().insert(result_.ops().end(), ops.begin() + static_cast<std::ptrdiff_t>(begin),
                           ops.begin() + static_cast<std::ptrdiff_t>(end));
      begin = end;
    }
    loss.inputs[operand::preference_loss::reference] = twin_of(loss.inputs[operand::preference_loss::logps]);
    result_.ops().push_back(std::move(loss));
    return std::move(result_);
  }

 private:
  // Returns true if the two models may differ in an op: ops before the first block (embeddings, tables of
  // positions) are the same to both.
  [[nodiscard]] bool differs(const Op& op) const {
    if (op.block != kNoBlock) return true;
    for (const TensorId id : op.inputs)
      if (id != kNoTensor && twin_[static_cast<size_t>(id)] != kNoTensor) return true;
    return false;
  }

  [[nodiscard]] TensorId twin_of(TensorId id) const {
    if (id == kNoTensor) return id;
    const TensorId twin = twin_[static_cast<size_t>(id)];
    return twin == kNoTensor ? id : twin;
  }

  void repeat(Op op) {
    if (!differs(op)) return;
    for (TensorId& id : op.inputs) id = twin_of(id);
    for (TensorId& id : op.outputs) {
      if (id == kNoTensor) continue;
      Tensor tensor = result_.tensor(id);
      check_internal(tensor.role == Role::activation, "add_reference: an op writes " + tensor.name);
      tensor.name = kPrefix + tensor.name.text();
      const TensorId made = result_.add_tensor(std::move(tensor));
      twin_[static_cast<size_t>(id)] = made;
      id = made;
    }
    op.scope = kPrefix + op.scope.text();
    op.of_reference = true;
    result_.ops().push_back(std::move(op));
  }

  Graph result_;
  std::vector<TensorId> twin_;  // by tensor of the forward pass: that of the reference
};

}  // namespace

Graph add_reference(const Graph& forward) { return ReferencePass(forward).run(); }

}  // namespace plimsoll
