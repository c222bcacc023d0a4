#include "plan/train_graphs.h"

namespace plimsoll {
namespace {

std::vector<int64_t> key_of(const RecomputeChoice& choice) {
  std::vector<int64_t> key = {choice.segment};
  for (const RecomputePoint point : choice.layers) key.push_back(static_cast<int64_t>(point));
  return key;
}

}  // namespace

const Graph& TrainGraphs::keeping(const Experiment& experiment, const Variant& variant, int64_t layers) {
  const std::array<int64_t, 3> shape = {variant.micro_batch, variant.micro_tokens, variant.loss_chunk};
  if (shape_ != shape) by_layers_.clear();
  shape_ = shape;
  OfDepth& known = by_layers_[layers];
  if (!known.keeping) known.keeping = build_micro_step(experiment, variant, PassId::differentiate);
  return *known.keeping;
}

const Graph& TrainGraphs::of(const Experiment& experiment, const Variant& variant, int64_t layers) {
  const Graph& train = keeping(experiment, variant, layers);
  const auto [found, is_new] = by_layers_[layers].recomputing.try_emplace(key_of(variant.recompute));
  if (is_new) found->second = recompute(train, variant.recompute);
  return found->second;
}

}  // namespace plimsoll
