#include "passes/rematerialise.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "graph/name_ending.h"

namespace plimsoll {
namespace {

class Rematerialisation {
 public:
  Rematerialisation(Graph graph, const std::function<bool(const Op&)>& selected)
      : graph_(std::move(graph)), ops_(std::move(graph_.ops())), copies_(graph_.tensors().size()) {
    graph_.ops().clear();
    for (const Op& op : ops_) {
      selected_.push_back(selected(op) ? 1 : 0);
      if (selected_.back() == 0) continue;
      for (const TensorId id : op.outputs)
        if (id != kNoTensor)
          copies_[static_cast<size_t>(id)].producer = static_cast<int32_t>(selected_.size()) - 1;
    }
  }

  Graph run() {
    graph_.ops().reserve(ops_.size() + ops_.size() / 8);
    for (size_t at = 0; at < ops_.size(); ++at) {
      if (selected_[at] != 0) continue;  // comes right before its readers
      Op op = std::move(ops_[at]);
      for (TensorId& id : op.inputs)
        if (is_copied(id)) id = copy_for_reader(id, op.stage);
      graph_.ops().push_back(std::move(op));
      ++readers_;
    }
    return std::move(graph_);
  }

 private:
  struct Copies {
    int32_t producer = -1;        // index of the selected op; -1: any other tensor
    TensorId latest = kNoTensor;  // the copy that was made last
    int64_t read_by = -1;         // the number of its last reader
  };

  [[nodiscard]] bool is_copied(TensorId id) const {
    return id != kNoTensor && static_cast<size_t>(id) < copies_.size() &&
           copies_[static_cast<size_t>(id)].producer >= 0;
  }

  TensorId copy_for_reader(TensorId id, Stage stage) {
    const auto i = static_cast<size_t>(id);
    const bool in_a_row = copies_[i].latest != kNoTensor && copies_[i].read_by + 1 >= readers_;
    if (!in_a_row) produce(ops_[static_cast<size_t>(copies_[i].producer)], stage);
    copies_[i].read_by = readers_;
    return copies_[i].latest;
  }

  void produce(Op op, Stage stage) {
    for (TensorId& id : op.inputs) {
      if (id == kNoTensor) continue;
      if (is_copied(id)) {
        id = copy_for_reader(id, stage);
      } else {
        const Role role = graph_.tensor(id).role;
        check_internal(is_persistent(role) || role == Role::input,
                       formatted("rematerialise: {} is no persistent tensor", graph_.tensor(id).name));
      }
    }
    // The first copy is the tensor itself.
    for (TensorId& output : op.outputs) {
      if (output == kNoTensor) continue;
      Copies& copies = copies_[static_cast<size_t>(output)];
      copies.latest = copies.latest == kNoTensor ? output : add_copy(output);
      // A side output without a reader now belongs to this reader all the same.
      copies.read_by = readers_;
      output = copies.latest;
    }
    op.stage = stage;
    graph_.ops().push_back(std::move(op));
  }

  TensorId add_copy(TensorId id) {
    Tensor tensor = graph_.tensor(id);
    static NameEnding repeated(".re");
    tensor.name = graph_.fresh_name(repeated.behind(tensor.name));
    return graph_.add_tensor(std::move(tensor));
  }

  Graph graph_;
  std::vector<Op> ops_;         // of the original graph
  std::vector<char> selected_;  // by op
  std::vector<Copies> copies_;  // by tensor of the original graph
  int64_t readers_ = 0;         // ops appended so far, the selected ones not counted
};

}  // namespace

Graph rematerialise(Graph graph, const std::function<bool(const Op&)>& selected) {
  if (std::none_of(graph.ops().begin(), graph.ops().end(), selected)) return graph;
  return Rematerialisation(std::move(graph), selected).run();
}

}  // namespace plimsoll
