#include "plan/report/variant_keys.h"

#include "base/error.h"
#include "base/format.h"
#include "passes/choice_json.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

// In YAML's flow style: names and numbers only.
std::string flow_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return value.dump();
  std::string inner;
  for (const auto& [key, item] : value.items())
    inner += formatted("{}{}: {}", inner.empty() ? "" : ", ", key, flow_text(item));
  return formatted("{{{}}}", inner);
}

}  // namespace

Json variant_keys(const Plan& plan) {
  const Variant& variant = plan.variant;
  const Experiment& experiment = plan.request.workload.experiment;
  Json keys = {{"batch.micro", variant.micro_batch}};
  if (experiment.train_capacity(variant).by_tokens()) keys["batch.micro_tokens"] = variant.micro_tokens;
  keys["memory.loss_chunk"] = variant.loss_chunk;
  const auto levels = levels_of(variant.recompute);
  check_internal(levels.has_value(), "variant_keys: no key states these levels of recomputation");
  keys["memory.recompute"] = recompute_json(*levels);
  // The keys that say the same in another way are let go.
  if (plan.request.choices.offload && plan.request.choices.offload_of_tier) keys["memory.tier"] = nullptr;
  if (plan.request.choices.offload && !plan.request.choices.offload_of_tier) keys["memory.offload"] = "auto";
  keys["memory.offload_to"] = offload_targets_json(variant.offload.targets());
  if (variant.offload.any()) keys["memory.prefetch"] = variant.offload.prefetch;
  // The stage is fixed too: auto may take another one, and a tier that is let go has said it.
  if (experiment.ranks > 1) keys["memory.shard"] = std::string(to_string(experiment.sharding().stage));
  return keys;
}

std::string variant_keys_text(const Plan& plan) {
  std::string text;
  const Json keys = variant_keys(plan);
  for (const auto& [key, value] : keys.items()) {
    const std::string set = formatted("{}={}", key, flow_text(value));
    text += (text.empty() ? "--set " : " --set ") + (value.is_object() ? formatted("'{}'", set) : set);
  }
  return text;
}

}  // namespace plimsoll
