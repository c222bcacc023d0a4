// A variant in the words of reports.
#include <algorithm>

#include "base/format.h"
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
                            : formatted(" in {} of {} layers", format_count(count), format_count(layers));
  }
  return text;
}

// "states of 10 of 32 layers on disk, the rest on the host"
std::string partial_words(Part part, const PartTarget& target, int64_t layers) {
  std::string text = std::string(to_string(part)) + " of ";
  const std::string of_all = formatted(" of {} layers", format_count(layers));
  if (target.on_disk > 0) text += formatted("{}{} on disk", format_count(target.on_disk), of_all);
  if (target.on_host == 0) return text;
  if (!target.stays()) return text + ", the rest on the host";
  return formatted("{}{}{}{} on the host", text, target.on_disk > 0 ? ", of " : "",
                   format_count(target.on_host), target.on_disk > 0 ? "" : of_all);
}

std::string offload_words(const OffloadChoice& choice, int64_t layers) {
  std::string text;
  for (const Space target : {Space::host, Space::disk}) {
    std::string names;
    for (const Part part : kEveryPart)
      if (choice.of(part) == PartTarget(target))
        names += (names.empty() ? "" : ", ") + std::string(to_string(part));
    if (!names.empty())
      text += formatted(", {}{}", names, target == Space::disk ? " on disk" : " on the host");
  }
  for (const Part part : kEveryPart)
    if (!choice.of(part).is_whole()) text += ", " + partial_words(part, choice.of(part), layers);
  if (choice.any() && choice.prefetch != 1)
    text += choice.prefetch == 0 ? ", without prefetch" : ", prefetch " + format_count(choice.prefetch);
  return text;
}

}  // namespace

std::string variant_words(const Experiment& experiment, const Variant& variant) {
  const MicroCapacity capacity = experiment.train_capacity(variant);
  std::string text = capacity.by_tokens()
                         ? formatted("micro-steps of {} tokens", format_count(variant.micro_tokens))
                         : formatted("micro-batch {} x {}", format_count(variant.micro_batch),
                                     format_count(variant.accumulation));
  const int64_t usual = default_loss_chunk(experiment, experiment.logit_rows(capacity));
  if (variant.loss_chunk != usual) text += ", loss in chunks of " + format_count(variant.loss_chunk);
  text += recompute_words(variant.recompute) + offload_words(variant.offload, experiment.model.layers);
  if (experiment.shares_prefixes) text += ", shared prefixes";
  if (variant.keep_frozen) text += ", outputs of the frozen blocks kept";
  if (experiment.sharding().weights())
    text += ", weights, gradients and optimizer states divided among devices";
  else if (experiment.sharding().gradients())
    text += ", gradients and optimizer states divided among devices";
  else if (experiment.sharding().states())
    text += ", optimizer states divided among devices";
  if (variant.update_in_backward) text += ", updates in the backward pass";
  return text;
}

}  // namespace plimsoll
