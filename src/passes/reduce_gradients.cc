#include "passes/reduce_gradients.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autodiff/autodiff.h"
#include "base/error.h"
#include "base/format.h"
#include "graph/op_kind.h"
#include "ops/operands.h"
#include "ops/optimizer/optimizer.h"
#include "ops/rule.h"
#include "ops/step_values.h"
#include "passes/optimizers.h"

namespace plimsoll {
namespace {

constexpr const char* kPieceSuffix = ".piece";

// The attribute by which an op's output, the gradient of a weight, is overwritten or added to.
const char* accumulation_of(const Op& op, size_t output) {
  const bool is_bias =
      (op.kind == OpKind::delta_gate_grad && output == size_t{operand::delta_gate_grad::d_dt_bias}) ||
      (op.kind == OpKind::linear_cross_entropy_grad &&
       output == size_t{operand::linear_cross_entropy_grad::d_bias});
  return is_bias ? "accumulate_bias" : "accumulate";
}

// States apart how the gradient of a head's bias is accumulated: the head's weight may be cut alone.
void set_bias_apart(Op& op) {
  if (op.kind != OpKind::linear_cross_entropy_grad || op.attrs.contains("accumulate_bias")) return;
  if (op.has_output(operand::linear_cross_entropy_grad::d_bias))
    op.attrs["accumulate_bias"] = op.attr_int("accumulate");
}

class Reducing {
 public:
  Reducing(Graph train, int64_t ranks)
      : train_(std::move(train)),
        ranks_(ranks),
        ops_(std::move(train_.ops())),
        cut_(train_.tensors().size()) {
    train_.ops().clear();
  }

  Graph run() {
    find_gradients();
    for (size_t at = 0; at < ops_.size(); ++at) {
      Op& op = ops_[at];
      std::vector<Cut> complete;
      for (size_t i = 0; i < op.outputs.size(); ++i) {
        if (op.outputs[i] == kNoTensor) continue;
        const Cut& cut = cut_[static_cast<size_t>(op.outputs[i])];
        if (cut.piece == 0) continue;
        overwrite_each(op, i);
        if (cut.last_writer == at) complete.push_back(cut);
      }
      train_.ops().push_back(std::move(op));
      const Op writer = train_.ops().back();
      for (const Cut& cut : complete) append_reduce(cut, writer);
    }
    return std::move(train_);
  }

 private:
  struct Cut {
    int64_t piece = 0;  // elements; 0: every rank has all of it, or it is no gradient
    TensorId whole = kNoTensor;
    std::string weight;
    size_t last_writer = 0;
  };

  void find_gradients() {
    for (size_t i = 0; i < cut_.size(); ++i) {
      const Tensor& weight = train_.tensors()[i];
      if (weight.role != Role::trainable_weight) continue;
      const TensorId gradient = train_.find(gradient_name(weight.name));
      check_internal(gradient != kNoTensor, formatted("reduce_gradients: {} has no gradient", weight.name));
      cut_[static_cast<size_t>(gradient)] = {piece_elements(weight.shape.elements(), ranks_), gradient,
                                             weight.name};
    }
    for (size_t at = 0; at < ops_.size(); ++at)
      for (const TensorId id : ops_[at].outputs)
        if (id != kNoTensor) cut_[static_cast<size_t>(id)].last_writer = at;
  }

  // Gradients that an op writes by one attribute are all cut, or none of them is: only one of a head's two weights trains.
  void overwrite_each(Op& op, size_t output) const {
    set_bias_apart(op);
    const char* const attribute = accumulation_of(op, output);
    if (op.attr_int(attribute) == kAlwaysAdds) return;
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const TensorId id = op.outputs[i];
      const bool other = i != output && id != kNoTensor && train_.tensor(id).role == Role::gradient &&
                         accumulation_of(op, i) == std::string_view(attribute);
      check_internal(
          !other || cut_[static_cast<size_t>(id)].piece > 0,
          "reduce_gradients: a gradient is cut, and another of the op is not: " + print_op(train_, op));
    }
    op.attrs[attribute] = kOverwritesEach;
  }

  void append_reduce(const Cut& cut, const Op& writer) {
    Tensor piece = gradient_piece(train_.tensor(cut.whole), cut.piece);
    train_.set_role(cut.whole, Role::activation);
    Op reduce;
    reduce.kind = OpKind::reduce_scatter;
    reduce.scope = cut.weight;
    reduce.stage = Stage::backward;
    reduce.block = writer.block;
    reduce.inputs = {cut.whole, train_.find(kStepTensor)};
    reduce.outputs = {train_.add_tensor(std::move(piece))};
    reduce.attrs = {{"elements", cut.piece}, {"first", int64_t{0}}, {"piece", cut.piece}};
    emit(train_, std::move(reduce), "");
  }

  Graph train_;
  int64_t ranks_;
  std::vector<Op> ops_;
  std::vector<Cut> cut_;  // by tensor
};

}  // namespace

Tensor gradient_piece(const Tensor& gradient, int64_t elements) {
  Tensor piece = rank_piece(gradient, elements);
  piece.name = piece.name + kPieceSuffix;
  return piece;
}

TensorId find_gradient(const Graph& update, const std::string& weight) {
  const TensorId piece = update.find(gradient_name(weight) + kPieceSuffix);
  return piece != kNoTensor ? piece : update.find(gradient_name(weight));
}

Graph reduce_gradients(Graph train, int64_t ranks) { return Reducing(std::move(train), ranks).run(); }

}  // namespace plimsoll
