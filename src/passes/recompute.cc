#include "passes/recompute.h"

#include <algorithm>
#include <utility>

#include "graph/name_ending.h"
#include "ops/rule.h"
#include "passes/lora.h"
#include "passes/rematerialise.h"
#include "passes/survival.h"

namespace plimsoll {
namespace {

class Recomputation {
 public:
  Recomputation(Graph train, const RecomputeChoice& choice)
      : graph_(std::move(train)),
        values_(find_forward_values(graph_)),
        fates_(find_fates(graph_, values_, choice)),
        derivable_(find_derivable(graph_, values_)),
        ops_(std::move(graph_.ops())),
        again_(fates_.size(), kNoTensor),
        collected_(ops_.size()) {
    graph_.ops().clear();
  }

  Graph run() {
    graph_.ops().reserve(ops_.size() + ops_.size() / 2);
    for (size_t at = 0; at < ops_.size(); ++at) {
      const bool backward = ops_[at].stage == Stage::backward;
      if (backward) repeat_what_is_missing(at);
      // Nothing asks for an op of the backward pass again.
      graph_.ops().push_back(backward ? reading_repeated(std::move(ops_[at])) : ops_[at]);
    }
    return std::move(graph_);
  }

 private:
  // Forward ops that `reader` needs again, in their order: the closure over what is neither kept nor repeated
  // yet.
  std::vector<int32_t> missing_for(const Op& reader) {
    std::vector<int32_t> missing;
    const auto collect = [&](const Op& op) {
      for (const TensorId id : op.inputs) {
        if (!dropped(id)) continue;
        if (again_[static_cast<size_t>(id)] != kNoTensor) continue;
        const int32_t producer = values_.producer[static_cast<size_t>(id)];
        if (std::exchange(collected_[static_cast<size_t>(producer)], 1) == 0) missing.push_back(producer);
      }
    };
    collect(reader);
    for (size_t i = 0; i < missing.size(); ++i) collect(ops_[static_cast<size_t>(missing[i])]);
    for (const int32_t at : missing) collected_[static_cast<size_t>(at)] = 0;
    std::sort(missing.begin(), missing.end());
    return missing;
  }

  [[nodiscard]] bool dropped(TensorId id) const {
    return id != kNoTensor && fates_[static_cast<size_t>(id)] != Fate::kept;
  }

  void repeat_what_is_missing(size_t reader) {
    const std::vector<int32_t> missing = missing_for(ops_[reader]);
    for (const int32_t at : missing) {
      Op op = reading_repeated(ops_[static_cast<size_t>(at)]);
      for (TensorId& output : op.outputs) {
        if (output == kNoTensor) continue;
        const TensorId copy = copy_of(output);
        // A side output may have been kept: then its repetition has no reader.
        if (dropped(output)) again_[static_cast<size_t>(output)] = copy;
        output = copy;
      }
      op.stage = Stage::backward;
      graph_.ops().push_back(std::move(op));
    }
    forget_passed_blocks(missing, ops_[reader].block);
    forget_what_is_cheap(missing, reader);
  }

  // Keeps only the inputs of the blocks that a segment's repetition ran through; otherwise all that was
  // dropped would be back.
  void forget_passed_blocks(const std::vector<int32_t>& repeated, BlockId reader_block) {
    for (const int32_t at : repeated) {
      for (const TensorId id : ops_[static_cast<size_t>(at)].outputs) {
        if (id == kNoTensor) continue;
        const auto i = static_cast<size_t>(id);
        if (values_.block[i] != reader_block && values_.leaves_block[i] == 0) again_[i] = kNoTensor;
      }
    }
  }

  // After matrix products were repeated, what they read of norms and dropout would wait for a much later
  // gradient: it is derived once more then. Side outputs (4 bytes a row) stay.
  void forget_what_is_cheap(const std::vector<int32_t>& repeated, size_t reader) {
    const auto main_output = [&](int32_t at) {
      return static_cast<size_t>(ops_[static_cast<size_t>(at)].outputs.front());
    };
    const bool only_cheap = std::all_of(repeated.begin(), repeated.end(),
                                        [&](int32_t at) { return derivable_[main_output(at)] != 0; });
    if (only_cheap) return;
    for (const int32_t at : repeated) {
      const size_t i = main_output(at);
      if (derivable_[i] != 0 && !read_in_module(static_cast<TensorId>(i), reader)) again_[i] = kNoTensor;
    }
  }

  // By the backward ops of one linear and its adapter, which follow each other.
  [[nodiscard]] bool read_in_module(TensorId id, size_t first) const {
    const auto module_of = [](const Op& op) { return op.adapts.empty() ? op.scope : op.adapts; };
    const Name module = module_of(ops_[first]);
    for (size_t at = first; at < ops_.size() && module_of(ops_[at]) == module; ++at)
      if (std::count(ops_[at].inputs.begin(), ops_[at].inputs.end(), id) > 0) return true;
    return false;
  }

  [[nodiscard]] Op reading_repeated(Op op) const {
    for (TensorId& id : op.inputs)
      if (dropped(id)) id = again_[static_cast<size_t>(id)];
    return op;
  }

  TensorId copy_of(TensorId id) {
    Tensor tensor = graph_.tensor(id);
    static NameEnding repeated(".re");
    tensor.name = graph_.fresh_name(repeated.behind(tensor.name));
    return graph_.add_tensor(std::move(tensor));
  }

  Graph graph_;
  ForwardValues values_;
  std::vector<Fate> fates_;  // by tensor of the original graph, like the following
  std::vector<char> derivable_;
  std::vector<Op> ops_;          // of the original graph
  std::vector<TensorId> again_;  // the repeated value that backward ops read now, or kNoTensor
  std::vector<char> collected_;  // by op: in missing_for's list
};

}  // namespace

Graph recompute(Graph train, const RecomputeChoice& choice) {
  if (!choice.layers.empty()) train = Recomputation(std::move(train), choice).run();
  return rematerialise(std::move(train), [](const Op& op) { return rule_of(op.kind).rematerialise; });
}

}  // namespace plimsoll
