#include "passes/survival.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/rule.h"

namespace plimsoll {
namespace {

// An op whose outputs are new activations can be repeated; one that adds to a metric or a cache cannot.
bool repeatable(const Graph& graph, const Op& op) {
  const OpRule& rule = rule_of(op.kind);
  return op.stage == Stage::forward && !rule.updates && rule.queue == Queue::compute && !rule.rematerialise &&
         std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
           return id == kNoTensor || graph.tensor(id).role == Role::activation;
         });
}

void check(const RecomputeChoice& choice, const Graph& graph) {
  check_internal(choice.layers.size() >= graph.blocks().size(),
                 "recompute: the choice has fewer points than the model has blocks");
  check_internal(choice.segment >= 1, "recompute: a segment has at least one block");
}

// The first block of each block's segment. A segment lies within one stack.
std::vector<BlockId> segments_of(const Graph& graph, const RecomputeChoice& choice) {
  std::vector<BlockId> first(graph.blocks().size());
  for (const Stack& stack : graph.stacks()) {
    for (BlockId block = stack.first; block < stack.first + stack.count; ++block) {
      const auto i = static_cast<size_t>(block);
      first[i] = block;
      if (block == stack.first || choice.layers[i] != RecomputePoint::block ||
          choice.layers[i - 1] != RecomputePoint::block)
        continue;
      if (block - first[i - 1] < choice.segment) first[i] = first[i - 1];
    }
  }
  return first;
}

// By block: how many ops mix its tokens in the forward pass.
std::vector<int32_t> count_mixers(const Graph& graph) {
  std::vector<int32_t> count(graph.blocks().size());
  for (const Op& op : graph.ops())
    if (op.stage == Stage::forward && op.block != kNoBlock &&
        rule_of(op.kind).recompute == RecomputeClass::mixer)
      ++count[static_cast<size_t>(op.block)];
  return count;
}

// Walks the forward pass once and decides op by op.
class Survival {
 public:
  Survival(const Graph& graph, const ForwardValues& values, const RecomputeChoice& choice)
      : graph_(graph),
        values_(values),
        points_(choice.layers),
        segments_(segments_of(graph, choice)),
        fates_(graph.tensors().size(), Fate::kept),
        mixers_(count_mixers(graph)),
        summed_(points_.size()) {
    // If nothing mixes tokens, the whole block is its MLP.
    for (size_t block = 0; block < mixers_.size(); ++block) summed_[block] = mixers_[block] == 0 ? 1 : 0;
  }

  std::vector<Fate> run() {
    mark_what_leaves_its_segment();
    for (const Op& op : graph_.ops()) {
      const BlockId block = block_of_output(op);
      if (block != kNoBlock) decide(op, static_cast<size_t>(block));
    }
    keep_lone_side_outputs();
    return std::move(fates_);
  }

 private:
  // The block of an op that can be repeated.
  [[nodiscard]] BlockId block_of_output(const Op& op) const {
    for (const TensorId id : op.outputs)
      if (id != kNoTensor) return values_.block[static_cast<size_t>(id)];
    return kNoBlock;
  }

  void mark_what_leaves_its_segment() {
    leaves_segment_.resize(fates_.size());
    for (const Op& op : graph_.ops()) {
      const auto reader = static_cast<size_t>(op.block);  // kNoBlock: beyond all blocks
      for (const TensorId id : op.inputs) {
        if (id == kNoTensor || values_.block[static_cast<size_t>(id)] == kNoBlock) continue;
        const auto writer = static_cast<size_t>(values_.block[static_cast<size_t>(id)]);
        if (reader >= segments_.size() || segments_[reader] != segments_[writer])
          leaves_segment_[static_cast<size_t>(id)] = 1;
      }
    }
  }

  void decide(const Op& op, size_t block) {
    if (points_[block] == RecomputePoint::none) return;
    const Fate fate = fate_at(points_[block], op, block);
    if (class_of(op) == RecomputeClass::mixer) --mixers_[block];
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor) continue;
      const auto i = static_cast<size_t>(id);
      fates_[i] = leaves_segment_[i] != 0 ? Fate::kept : fate;
    }
  }

  static RecomputeClass class_of(const Op& op) { return rule_of(op.kind).recompute; }

  Fate fate_at(RecomputePoint point, const Op& op, size_t block) {
    switch (point) {
      case RecomputePoint::none:
        return Fate::kept;
      case RecomputePoint::act:
        return follows_from_gate(op) ? Fate::derived : unless_needed(op);
      case RecomputePoint::cheap:
        return derived(op) ? Fate::derived : unless_needed(op);
      case RecomputePoint::mlp:
        if (summed_[block] != 0) return Fate::lost;
        if (mixers_[block] == 0 && class_of(op) == RecomputeClass::sum) {
          summed_[block] = 1;
          return Fate::kept;
        }
        return derived(op) ? Fate::derived : unless_needed(op);
      case RecomputePoint::attention:
        return class_of(op) == RecomputeClass::mixer ? Fate::kept : Fate::lost;
      case RecomputePoint::block:
        return Fate::lost;
    }
    return Fate::kept;
  }

  // A value that dies in the forward pass must not live on because a recomputed op reads it.
  [[nodiscard]] Fate unless_needed(const Op& op) const {
    const bool needed = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
      return id != kNoTensor && values_.needed[static_cast<size_t>(id)] != 0;
    });
    return needed ? Fate::kept : Fate::lost;
  }

  static bool is_cheap(const Op& op) {
    return class_of(op) != RecomputeClass::product && class_of(op) != RecomputeClass::mixer;
  }

  // Cheap, and what it reads is there or follows as cheaply.
  [[nodiscard]] bool derived(const Op& op) const {
    return is_cheap(op) && std::none_of(op.inputs.begin(), op.inputs.end(), [&](TensorId id) {
             return id != kNoTensor && fates_[static_cast<size_t>(id)] == Fate::lost;
           });
  }

  [[nodiscard]] bool follows_from_gate(const Op& op) const {
    if (class_of(op) == RecomputeClass::gate) return derived(op);
    return is_cheap(op) && !op.inputs.empty() && op.inputs.front() != kNoTensor &&
           fates_[static_cast<size_t>(op.inputs.front())] == Fate::derived;
  }

  // A norm is not repeated for its reciprocal deviations alone (4 bytes a row): they stay unless the norm's
  // main output is recomputed anyway.
  void keep_lone_side_outputs() {
    std::vector<char> demanded(fates_.size());
    for (auto op = graph_.ops().rbegin(); op != graph_.ops().rend(); ++op) {
      if (block_of_output(*op) == kNoBlock) continue;
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
  std::vector<BlockId> segments_;     // by block: the first one of its segment
  std::vector<Fate> fates_;           // by tensor
  std::vector<char> leaves_segment_;  // by tensor
  std::vector<int32_t> mixers_;       // by block: those to come
  std::vector<char> summed_;          // by block: the residual sum after the last mixer is behind
};

}  // namespace

ForwardValues find_forward_values(const Graph& train) {
  const size_t n = train.tensors().size();
  ForwardValues values{std::vector<int32_t>(n, kNoOp), std::vector<BlockId>(n, kNoBlock),
                       std::vector<char>(n), std::vector<char>(n)};
  for (size_t at = 0; at < train.ops().size(); ++at) {
    const Op& op = train.ops()[at];
    for (const TensorId id : op.inputs) {
      if (id == kNoTensor) continue;
      const auto i = static_cast<size_t>(id);
      if (op.stage == Stage::backward) values.needed[i] = 1;
      if (values.block[i] != op.block) values.leaves_block[i] = 1;
    }
    if (!repeatable(train, op)) continue;
    for (const TensorId id : op.outputs) {
      if (id == kNoTensor) continue;
      values.producer[static_cast<size_t>(id)] = static_cast<int32_t>(at);
      values.block[static_cast<size_t>(id)] = op.block;
    }
  }
  return values;
}

std::vector<Fate> find_fates(const Graph& train, const ForwardValues& values, const RecomputeChoice& choice) {
  if (choice.layers.empty()) return std::vector<Fate>(train.tensors().size(), Fate::kept);
  check(choice, train);
  return Survival(train, values, choice).run();
}

std::vector<char> find_derivable(const Graph& train, const ForwardValues& values) {
  const RecomputeChoice cheap{std::vector(train.blocks().size(), RecomputePoint::cheap), 1};
  const std::vector<Fate> fates = find_fates(train, values, cheap);
  std::vector<char> derivable(fates.size());
  std::transform(fates.begin(), fates.end(), derivable.begin(),
                 [](Fate fate) { return fate == Fate::derived ? 1 : 0; });
  return derivable;
}

}  // namespace plimsoll
