#include "autodiff/autodiff.h"

#include <unordered_map>

#include "base/error.h"
#include "graph/op_kind.h"
#include "ops/rule.h"
#include "ops/step_values.h"

namespace plimsoll {
namespace {

// Tensors that lead to a trainable weight, by walking forwards once.
std::vector<bool> find_wanted(const Graph& graph) {
  std::vector<bool> wanted(graph.tensors().size());
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = graph.tensors()[i].role == Role::trainable_weight;
  for (const Op& op : graph.ops()) {
    bool any = false;
    for (const TensorId id : op.inputs) any = any || (id != kNoTensor && wanted[static_cast<size_t>(id)]);
    for (const TensorId id : op.outputs)
      if (any && id != kNoTensor) wanted[static_cast<size_t>(id)] = true;
  }
  return wanted;
}

class Differentiator : public GradientContext {
 public:
  Differentiator(Graph& graph, const AutodiffOptions& options)
      : graph_(graph),
        options_(options),
        wanted_(find_wanted(graph)),
        step_(graph.find(kStepTensor)),
        axis_of_(graph.tensors().size(), kFirstAxis) {
    check_internal(step_ != kNoTensor, "differentiate: the graph has no step values");
    for (const Op& op : graph.ops())
      for (const TensorId id : op.outputs)
        if (id != kNoTensor) axis_of_[static_cast<size_t>(id)] = op.axis;
  }

  void run(std::vector<Op> forward) {
    check_internal(!forward.empty(), "differentiate: an empty graph");
    const Op loss = forward.back();
    if (rule_of(loss.kind).gradient_replaces) graph_.ops().pop_back();
    for (auto op = forward.rbegin(); op != forward.rend(); ++op) {
      if (op != forward.rbegin() && !has_gradient(*op)) continue;
      const OpRule& rule = rule_of(op->kind);
      if (rule.gradient == nullptr) {
        if (!leads_anywhere(*op)) continue;
        throw InternalError("no gradient rule: " + print_op(graph_, *op));
      }
      at_ = &*op;
      made_from_ = graph_.tensors().size();
      rule.gradient(*this, *op);
    }
  }

  const Graph& graph() const override { return graph_; }
  TensorId gradient_of(TensorId output) const override { return partial(output); }
  bool wants(TensorId input) const override {
    return input != kNoTensor && static_cast<size_t>(input) < wanted_.size() &&
           wanted_[static_cast<size_t>(input)];
  }
  TensorId partial(TensorId input) const override {
    const auto found = gradients_.find(input);
    return found == gradients_.end() ? kNoTensor : found->second;
  }
  void set_gradient(TensorId input, TensorId gradient) override {
    gradients_[input] = gradient;
    // The gradient of a block's result is made in the next block's backward pass.
    if (static_cast<size_t>(gradient) >= made_from_) graph_.set_block(gradient, graph_.tensor(input).block);
  }
  void add_gradient(TensorId input, TensorId gradient) override {
    const TensorId so_far = partial(input);
    if (so_far == kNoTensor) return set_gradient(input, gradient);
    const std::string name = "d_" + graph_.tensor(input).name;
    // The axis of the rows of `input`, which an op may read from another axis than its own.
    const AxisId axis = axis_of_[static_cast<size_t>(input)];
    set_gradient(input, emit_on(axis, OpKind::add, {so_far, gradient}, {}, {kNewTensor}, name)[0]);
  }
  WeightGradient weight_gradient(TensorId weight) override {
    const Tensor tensor = graph_.tensor(weight);
    const std::string name = gradient_name(tensor.name);
    const TensorId existing = graph_.find(name);
    if (existing != kNoTensor) return {existing, 1};
    return {graph_.add_tensor(
                {name, tensor.shape, options_.gradient_dtype, Role::gradient, Space::device, tensor.block}),
            0};
  }
  TensorId step() const override { return step_; }
  Operands emit(OpKind kind, Operands inputs, Attrs attrs, Operands outputs,
                const std::string& base_name) override {
    return emit_on(at_->axis, kind, std::move(inputs), std::move(attrs), std::move(outputs), base_name);
  }

 private:
  Operands emit_on(AxisId axis, OpKind kind, Operands inputs, Attrs attrs, Operands outputs,
                   const std::string& base_name) {
    Op op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.attrs = std::move(attrs);
    op.scope = at_->scope;
    op.adapts = at_->adapts;
    op.block = at_->block;
    op.axis = axis;
    op.stage = Stage::backward;
    return plimsoll::emit(graph_, std::move(op), base_name);
  }
  bool has_gradient(const Op& op) const {
    for (const TensorId id : op.outputs)
      if (id != kNoTensor && gradients_.contains(id)) return true;
    return false;
  }
  bool leads_anywhere(const Op& op) const {
    for (const TensorId id : op.inputs)
      if (wants(id)) return true;
    return false;
  }

  Graph& graph_;
  AutodiffOptions options_;
  std::vector<bool> wanted_;
  TensorId step_;
  std::vector<AxisId> axis_of_;  // of the rows of each forward tensor
  const Op* at_ = nullptr;       // of the forward pass, whose gradient is being written
  size_t made_from_ = 0;         // tensors from here on are new
  std::unordered_map<TensorId, TensorId> gradients_;
};

}  // namespace

std::string gradient_name(const std::string& weight) { return weight + ".grad"; }

Graph differentiate(Graph graph, const AutodiffOptions& options) {
  const std::vector<Op> forward = graph.ops();
  Differentiator(graph, options).run(forward);
  return graph;
}

}  // namespace plimsoll
