#include "passes/survival.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/rule.h"
#include "passes/layers.h"

namespace plimsoll {
namespace {

// An op whose outputs are new activations can be repeated; one that adds to a metric or a cache cannot.
bool repeatable(const Graph& graph, const Op& op) {
  const OpRule& rule = rule_of(op.kind);
  return op.stage == Stage::forward && !rule.updates && !rule.io && !rule.rematerialise &&
         std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
           return id == kNoTensor || graph.tensor(id).role == Role::activation;
         });
}

size_t count_layers(const ForwardValues& values) {
  const auto last = std::max_element(values.layer.begin(), values.layer.end());  // kNoLayer is -1
  return last == values.layer.end() ? 0 : static_cast<size_t>(*last + 1);
}

void check(const RecomputeChoice& choice, size_t layers) {
  check_internal(choice.layers.size() >= layers, "recompute: the choice has fewer layers than the model");
  check_internal(choice.segment >= 1, "recompute: a segment has at least one layer");
}

// The first layer of each layer's segment.
std::vector<int32_t> segments_of(const std::vector<RecomputePoint>& points, int64_t length) {
  std::vector<int32_t> first(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    first[i] = static_cast<int32_t>(i);
    if (i == 0 || points[i] != RecomputePoint::block || points[i - 1] != RecomputePoint::block) continue;
    if (static_cast<int64_t>(i) - first[i - 1] < length) first[i] = first[i - 1];
  }
  return first;
}

// Walks the forward pass once and decides op by op.
class Survival {
 public:
  Survival(const Graph& graph, const ForwardValues& values, const RecomputeChoice& choice)
      : graph_(graph),
        values_(values),
        points_(choice.layers),
        segments_(segments_of(points_, choice.segment)),
        fates_(graph.tensors().size(), Fate::kept),
        attended_(points_.size()),
        summed_(points_.size()) {}

  std::vector<Fate> run() {
    mark_what_leaves_its_segment();
    for (const Op& op : graph_.ops()) {
      const int32_t layer = layer_of_output(op);
      if (layer != kNoLayer) decide(op, static_cast<size_t>(layer));
    }
    keep_lone_side_outputs();
    return std::move(fates_);
  }

 private:
  // Of an op that can be repeated.
  [[nodiscard]] int32_t layer_of_output(const Op& op) const {
    for (const TensorId id : op.outputs)
      if (id != kNoTensor) return values_.layer[static_cast<size_t>(id)];
    return kNoLayer;
  }

  void mark_what_leaves_its_segment() {
    leaves_segment_.resize(fates_.size());
    for (const Op& op : graph_.ops()) {
      const auto reader = static_cast<size_t>(layer_of(op.scope));  // kNoLayer: beyond all layers
      for (const TensorId id : op.inputs) {
        if (id == kNoTensor || values_.layer[static_cast<size_t>(id)] == kNoLayer) continue;
        const auto writer = static_cast<size_t>(values_.layer[static_cast<size_t>(id)]);
        if (reader >= segments_.size() || segments_[reader] != segments_[writer])
          leaves_segment_[static_cast<size_t>(id)] = 1;
      }
    }
  }

  void decide(const Op& op, size_t layer) {
    if (points_[layer] == RecomputePoint::none) return;
    const Fate fate = fate_at(points_[layer], op, layer);
    if (op.kind == OpKind::attention) attended_[layer] = 1;
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor) continue;
      const auto i = static_cast<size_t>(id);
      fates_[i] = leaves_segment_[i] != 0 ? Fate::kept : fate;
    }
  }

  Fate fate_at(RecomputePoint point, const Op& op, size_t layer) {
    switch (point) {
      case RecomputePoint::none:
        return Fate::kept;
      case RecomputePoint::act:
        return follows_from_gate(op) ? Fate::derived : unless_needed(op);
      case RecomputePoint::cheap:
        return derived(op) ? Fate::derived : unless_needed(op);
      case RecomputePoint::mlp:
        if (summed_[layer] != 0) return Fate::lost;
        if (attended_[layer] != 0 && op.kind == OpKind::add) {
          summed_[layer] = 1;
          return Fate::kept;
        }
        return derived(op) ? Fate::derived : unless_needed(op);
      case RecomputePoint::attention:
        return op.kind == OpKind::attention ? Fate::kept : Fate::lost;
      case RecomputePoint::block:
        return Fate::lost;
    }
    return Fate::kept;
  }

  // A value that dies in the forward pass must not live on because something computed again reads it.
  [[nodiscard]] Fate unless_needed(const Op& op) const {
    const bool needed = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      return id != kNoTensor && values_.needed[static_cast<size_t>(id)] != 0;
    });
    return needed ? Fate::kept : Fate::lost;
  }

  // Its rule states no floating-point work of matrix kind, and what it reads is there or follows as cheaply.
  [[nodiscard]] bool derived(const Op& op) const {
    return rule_of(op.kind).cost == nullptr &&
           std::none_of(op.inputs.begin(), op.inputs.end(), [&](TensorId id) {
             return id != kNoTensor && fates_[static_cast<size_t>(id)] == Fate::lost;
           });
  }

  [[nodiscard]] bool follows_from_gate(const Op& op) const {
    if (op.kind == OpKind::swiglu) return derived(op);
    return op.kind == OpKind::dropout && fates_[static_cast<size_t>(op.inputs[0])] == Fate::derived;
  }

  // A norm is not repeated for its reciprocal deviations alone (4 bytes a row): they stay unless the norm's
  // main output is computed again anyway.
  void keep_lone_side_outputs() {
    std::vector<char> demanded(fates_.size());
    for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
      if (layer_of_output(*op) == kNoLayer) continue;
      bool repeated = false;
      for (size_t o = 0; o < op->outputs.size(); ++o) {
        if (!op->has_output(o)) continue;
        const auto i = static_cast<size_t>(op->outputs[o]);
        if (fates_[i] != Fate::kept) repeated |= demanded[i] != 0 || (o == 0 && values_.needed[i] != 0);
      }
      if (repeated) {
        for (const TensorId id : op->inputs)
          if (id != kNoTensor) demanded[static_cast<size_t>(id)] = 1;
      } else {
        for (size_t o = 1; o < op->outputs.size(); ++o)
          if (op->has_output(o)) fates_[static_cast<size_t>(op->outputs[o])] = Fate::kept;
      }
    }
  }

  const Graph& graph_;
  const ForwardValues& values_;
  std::vector<RecomputePoint> points_;
  std::vector<int32_t> segments_;
  std::vector<Fate> fates_;           // by tensor
  std::vector<char> leaves_segment_;  // by tensor
  std::vector<char> attended_;        // by layer: the attention is behind
  std::vector<char> summed_;          // by layer: the first residual sum is behind
};

}  // namespace

ForwardValues find_forward_values(const Graph& train) {
  const size_t n = train.tensors().size();
  ForwardValues values{std::vector<int32_t>(n, kNoOp), std::vector<int32_t>(n, kNoLayer),
                       std::vector<char>(n), std::vector<char>(n)};
  for (size_t at = 0; at < train.ops().size(); ++at) {
    const Op& op = train.ops()[at];
    const int32_t layer = layer_of(op.scope);
    for (const TensorId id : op.inputs) {
      if (id == kNoTensor) continue;
      const auto i = static_cast<size_t>(id);
      if (op.stage == Stage::backward) values.needed[i] = 1;
      if (values.layer[i] != layer) values.leaves_layer[i] = 1;
    }
    if (!repeatable(train, op)) continue;
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor) continue;
      values.producer[static_cast<size_t>(id)] = static_cast<int32_t>(at);
      values.layer[static_cast<size_t>(id)] = layer;
    }
  }
  return values;
}

std::vector<Fate> find_fates(const Graph& train, const ForwardValues& values, const RecomputeChoice& choice) {
  if (choice.layers.empty()) return std::vector<Fate>(train.tensors().size(), Fate::kept);
  check(choice, count_layers(values));
  return Survival(train, values, choice).run();
}

std::vector<char> find_derivable(const Graph& train, const ForwardValues& values) {
  const RecomputeChoice cheap{std::vector(count_layers(values), RecomputePoint::cheap), 1};
  const std::vector<Fate> fates = find_fates(train, values, cheap);
  std::vector<char> derivable(fates.size());
  std::transform(fates.begin(), fates.end(), derivable.begin(),
                 [](Fate fate) { return fate == Fate::derived ? 1 : 0; });
  return derivable;
}

}  // namespace plimsoll
