#include "passes/recompute.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "ops/rule.h"
#include "passes/layers.h"
#include "passes/rematerialise.h"
#include "passes/survival.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kNumRecomputePoints> kPointNames = {"none", "act",       "cheap",
                                                                           "mlp",  "attention", "block"};

class Recomputation {
 public:
  Recomputation(Graph train, const RecomputeChoice& choice)
      : graph_(std::move(train)),
        values_(find_forward_values(graph_)),
        dropped_(find_dropped(graph_, values_, choice)),
        ops_(std::move(graph_.ops())),
        again_(dropped_.size(), kNoTensor),
        collected_(ops_.size()) {
    graph_.ops().clear();
  }

  Graph run() {
    for (const Op& op : ops_) {
      if (op.stage == Stage::backward) repeat_what_is_missing(op);
      graph_.ops().push_back(op.stage == Stage::backward ? reading_repeated(op) : op);
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
        if (id == kNoTensor || dropped_[static_cast<size_t>(id)] == 0) continue;
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

  void repeat_what_is_missing(const Op& reader) {
    const std::vector<int32_t> missing = missing_for(reader);
    for (const int32_t at : missing) {
      Op op = reading_repeated(ops_[static_cast<size_t>(at)]);
      for (TensorId& output : op.outputs) {
        if (output == kNoTensor) continue;
        const TensorId copy = copy_of(output);
        // A side output may have been kept: then its repetition has no reader.
        if (dropped_[static_cast<size_t>(output)] != 0) again_[static_cast<size_t>(output)] = copy;
        output = copy;
      }
      op.stage = Stage::backward;
      graph_.ops().push_back(std::move(op));
    }
    forget_passed_layers(missing, layer_of(reader.scope));
  }

  // Of the layers that a segment's repetition ran through, only their inputs stay; the rest would be all that
  // was dropped.
  void forget_passed_layers(const std::vector<int32_t>& repeated, int32_t reader_layer) {
    for (const int32_t at : repeated) {
      for (const TensorId id : ops_[static_cast<size_t>(at)].outputs) {
        if (id == kNoTensor) continue;
        const auto i = static_cast<size_t>(id);
        if (values_.layer[i] != reader_layer && values_.leaves_layer[i] == 0) again_[i] = kNoTensor;
      }
    }
  }

  [[nodiscard]] Op reading_repeated(Op op) const {
    for (TensorId& id : op.inputs)
      if (id != kNoTensor && dropped_[static_cast<size_t>(id)] != 0) id = again_[static_cast<size_t>(id)];
    return op;
  }

  TensorId copy_of(TensorId id) {
    Tensor tensor = graph_.tensor(id);
    tensor.name = graph_.fresh_name(tensor.name + ".re");
    return graph_.add_tensor(std::move(tensor));
  }

  Graph graph_;
  ForwardValues values_;
  std::vector<char> dropped_;    // by tensor of the original graph, like the following
  std::vector<Op> ops_;          // of the original graph
  std::vector<TensorId> again_;  // the repeated value that backward ops read now, or kNoTensor
  std::vector<char> collected_;  // by op: in missing_for's list
};

}  // namespace

std::string_view to_string(RecomputePoint point) { return kPointNames[static_cast<size_t>(point)]; }

RecomputePoint parse_recompute_point(std::string_view text) {
  const auto found = std::find(kPointNames.begin(), kPointNames.end(), text);
  if (found == kPointNames.end())
    throw UsageError("'" + std::string(text) + "' is no point of recomputation (none, act, cheap, mlp, " +
                     "attention, block)");
  return static_cast<RecomputePoint>(found - kPointNames.begin());
}

Graph recompute(Graph train, const RecomputeChoice& choice) {
  return rematerialise(Recomputation(std::move(train), choice).run(),
                       [](const Op& op) { return rule_of(op.kind).rematerialise; });
}

}  // namespace plimsoll
