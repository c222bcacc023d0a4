#include "plan/program/train_graphs.h"

namespace plimsoll {
namespace {

std::vector<int64_t> key_of(const RecomputeChoice& choice) {
  std::vector<int64_t> key = {choice.segment};
  for (const RecomputePoint point : choice.layers) key.push_back(static_cast<int64_t>(point));
  return key;
}

}  // namespace

const Graph& TrainGraphs::keeping(const Experiment& experiment, const Variant& variant) {
  const std::array<int64_t, 3> shape = {variant.micro_batch, variant.micro_tokens, variant.loss_chunk};
  if (shape_ != shape) by_depth_.clear();
  shape_ = shape;
  OfDepth& known = by_depth_[experiment.model.stacks()];
  if (!known.keeping) known.keeping = build_micro_step(experiment, variant, PassId::merge_adapters);
  return *known.keeping;
}

const Graph& TrainGraphs::of(const Experiment& experiment, const Variant& variant) {
  const Graph& train = keeping(experiment, variant);
  auto& recomputing = by_depth_[experiment.model.stacks()].recomputing;
  const auto [found, is_new] = recomputing.try_emplace(key_of(variant.recompute));
  if (is_new) found->second = recompute(train, variant.recompute);
  return found->second;
}

}  // namespace plimsoll
