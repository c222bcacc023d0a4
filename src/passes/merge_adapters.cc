#include "passes/merge_adapters.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "graph/op_kind.h"
#include "ops/operands.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

class Merging {
 public:
  explicit Merging(Graph graph)
      : graph_(std::move(graph)), uses_(graph_.tensors().size()), gone_(graph_.ops().size()) {
    for (size_t at = 0; at < graph_.ops().size(); ++at) {
      const Op& op = graph_.ops()[at];
      for (const TensorId id : op.inputs) {
        if (id == kNoTensor) continue;
        ++use(id).readers;
        use(id).last_reader = at;
      }
      for (const TensorId id : op.outputs)
        if (id != kNoTensor) use(id).producer = static_cast<int64_t>(at);
    }
  }

  Graph run() {
    for (size_t at = 0; at < graph_.ops().size(); ++at) {
      const Op& op = graph_.ops()[at];
      if (op.kind == OpKind::linear) merge_forward(op, at);
      if (op.kind == OpKind::linear_dx) merge_backward(op, at);
    }
    if (merged_.empty()) return std::move(graph_);
    Graph result = without_sums();
    for (size_t at = 0; at < graph_.ops().size(); ++at) {
      if (const auto waits = waiting_.find(at); waits != waiting_.end())
        result.ops().push_back(renumbered(graph_.ops()[waits->second]));
      if (const auto merged = merged_.find(at); merged != merged_.end())
        result.ops().push_back(renumbered(merged->second));
      else if (gone_[at] == 0)
        result.ops().push_back(renumbered(graph_.ops()[at]));
    }
    return result;
  }

 private:
  struct Use {
    int64_t producer = -1;
    int32_t readers = 0;
    size_t last_reader = 0;
    bool dropped = false;
    TensorId number = kNoTensor;  // in the graph that is made
  };
  Use& use(TensorId id) { return uses_[static_cast<size_t>(id)]; }

  // The place of the product of `kind` that makes `addend` for this op alone, on the same rows; -1: none
  // does.
  int64_t product_for(const Op& op, TensorId addend, OpKind kind, size_t step, size_t adapter) {
    if (addend == kNoTensor || op.has_input(adapter)) return -1;
    const int64_t at = use(addend).producer;
    if (at < 0 || use(addend).readers != 1) return -1;
    const Op& made = graph_.ops()[static_cast<size_t>(at)];
    const bool alike = made.kind == kind && !made.has_input(adapter) && made.input(step) == op.input(step) &&
                       made.axis == op.axis && made.stage == op.stage;
    return alike ? at : -1;
  }

  // All tensors but those that a product was added to: nothing touches them any more.
  Graph without_sums() {
    Graph result(graph_.name());
    result.set_blocks(graph_.blocks());
    result.set_axes(graph_.axes());
    for (size_t i = 0; i < uses_.size(); ++i)
      if (!uses_[i].dropped) uses_[i].number = result.add_tensor(graph_.tensors()[i]);
    return result;
  }

  Op renumbered(Op op) {
    for (Operands* operands : {&op.inputs, &op.outputs})
      for (TensorId& id : *operands)
        if (id != kNoTensor) id = use(id).number;
    return op;
  }

  // y_base = x W^T; t = x A^T; y = y_base + t B^T. The product moves behind A's.
  void merge_forward(const Op& up, size_t place_of_up) {
    using at = operand::linear;
    if (up.adapts.empty() || up.has_input(at::bias)) return;
    const int64_t found = product_for(up, up.input(at::addend), OpKind::linear, at::step, at::t);
    if (found < 0) return;
    const auto place = static_cast<size_t>(found);
    const Op& base = graph_.ops()[place];
    if (base.scope != up.adapts || !lives_until(base.inputs[at::x], up, place_of_up)) return;
    Op merged = base;
    merged.inputs.resize(at::b + 1, kNoTensor);
    merged.inputs[at::t] = up.inputs[at::x];
    merged.inputs[at::b] = up.inputs[at::weight];
    merged.attrs["adapter_scale"] = up.attr_float("scale");
    merged.outputs = up.outputs;
    merged_.emplace(place_of_up, std::move(merged));
    gone_[place] = 1;
    use(up.inputs[at::addend]).dropped = true;
    bring_weight(base.inputs[at::weight], place_of_up);
  }

  // With dropout A reads something else, and x may have died.
  bool lives_until(TensorId x, const Op& up, size_t at) {
    if (use(x).last_reader >= at) return true;
    const int64_t down = use(up.inputs[operand::linear::x]).producer;
    return down >= 0 && graph_.ops()[static_cast<size_t>(down)].inputs[operand::linear::x] == x;
  }

  // A weight that is made for its reader is made where that now is.
  void bring_weight(TensorId weight, size_t at) {
    const Use& of = use(weight);
    if (of.producer < 0 || of.readers != 1) return;
    const auto place = static_cast<size_t>(of.producer);
    if (!rule_of(graph_.ops()[place].kind).rematerialise) return;
    waiting_.emplace(at, place);
    gone_[place] = 1;
  }

  // d_x = d_x_in + d_t A; d_x' = d_x + d_y W.
  void merge_backward(const Op& dx, size_t place_of_dx) {
    using at = operand::linear_dx;
    const int64_t found = product_for(dx, dx.input(at::d_x_in), OpKind::linear_dx, at::step, at::d_t);
    if (found < 0 || !dx.adapts.empty()) return;
    const Op& of_adapter = graph_.ops()[static_cast<size_t>(found)];
    if (of_adapter.adapts != dx.scope) return;
    Op merged = dx;
    merged.inputs.resize(at::a + 1, kNoTensor);
    merged.inputs[at::d_x_in] = of_adapter.input(at::d_x_in);
    merged.inputs[at::d_t] = of_adapter.inputs[at::d_y];
    merged.inputs[at::a] = of_adapter.inputs[at::weight];
    merged.attrs["adapter_scale"] = of_adapter.attr_float("scale");
    merged_.emplace(place_of_dx, std::move(merged));
    gone_[static_cast<size_t>(found)] = 1;
    use(dx.inputs[at::d_x_in]).dropped = true;
  }

  Graph graph_;
  std::vector<Use> uses_;             // by tensor
  std::map<size_t, Op> merged_;       // what stands at the place of the latter of two products
  std::map<size_t, size_t> waiting_;  // what comes right before an op now
  std::vector<char> gone_;            // by op: it is elsewhere, or in another
};

}  // namespace

Graph merge_adapters(Graph graph) { return Merging(std::move(graph)).run(); }

}  // namespace plimsoll
