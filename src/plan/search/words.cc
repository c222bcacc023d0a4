// A variant in the words of reports.
#include <algorithm>

#include "base/units.h"
#include "plan/search/plan.h"

namespace plimsoll {
namespace {

std::string recompute_words(const RecomputeChoice& choice) {
  std::string text;
  for (int i = kNumRecomputePoints - 1; i > 0; --i) {
    const auto point = static_cast<RecomputePoint>(i);
    const auto count = std::count(choice.layers.begin(), choice.layers.end(), point);
    if (count == 0) continue;
    const auto layers = static_cast<int64_t>(choice.layers.size());
    text += ", recompute " + std::string(to_string(point));
    if (point == RecomputePoint::block && choice.segment > 1)
      text += " by segments of " + format_count(choice.segment);
    text += count == layers ? " in all layers"
                            : " in " + format_count(count) + " of " + format_count(layers) + " layers";
  }
  return text;
}

std::string offload_words(const OffloadChoice& choice) {
  const std::pair<const char*, Space> parts[] = {{"states", choice.states},
                                                 {"gradients", choice.gradients},
                                                 {"weights", choice.weights},
                                                 {"activations", choice.activations}};
  std::string text;
  for (const Space home : {Space::host, Space::disk}) {
    std::string names;
    for (const auto& [name, space] : parts)
      if (space == home) names += (names.empty() ? "" : ", ") + std::string(name);
    if (!names.empty()) text += ", " + names + (home == Space::disk ? " on disk" : " on the host");
  }
  return text;
}

}  // namespace

std::string variant_words(const Experiment& experiment, const Variant& variant) {
  const MicroRoom room = experiment.train_room(variant);
  std::string text = room.by_tokens() ? "micro-steps of " + format_count(variant.micro_tokens) + " tokens"
                                      : "micro-batch " + format_count(variant.micro_batch) + " x " +
                                            format_count(variant.accumulation);
  const int64_t usual = default_loss_chunk(experiment, experiment.logit_rows(room));
  if (variant.loss_chunk != usual) text += ", loss in chunks of " + format_count(variant.loss_chunk);
  text += recompute_words(variant.recompute) + offload_words(variant.offload);
  if (experiment.shares_prefixes) text += ", shared prefixes";
  if (variant.keep_frozen) text += ", outputs of the frozen blocks kept";
  if (variant.update_in_backward) text += ", updates in the backward pass";
  return text;
}

}  // namespace plimsoll
