#include "passes/choice_json.h"

namespace plimsoll {

using Json = nlohmann::ordered_json;

Json offload_targets_json(const OffloadTargets& targets) {
  Json object = Json::object();
  const auto count = [](int64_t layers) {
    return layers >= PartTarget::kEveryBlock ? Json("all") : Json(layers);
  };
  for (const Part part : kEveryPart) {
    const PartTarget& target = targets[static_cast<size_t>(part)];
    if (!target.any()) continue;
    Json& of_part = object[std::string(to_string(part))];
    if (target.is_whole()) {
      of_part = target.on_disk > 0 ? "disk" : "host";
      continue;
    }
    if (target.on_disk > 0) of_part["disk"] = count(target.on_disk);
    if (target.on_host > 0) of_part["host"] = count(target.on_host);
  }
  return object;
}

Json recompute_json(const RecomputeLevels& levels) {
  const std::string rest(to_string(levels.rest));
  if (levels.is_one_point()) return rest;
  if (levels.segment > 1) return {{rest, "all"}, {"segment", levels.segment}};
  return {{std::string(to_string(levels.first)), levels.first_layers}, {rest, "all"}};
}

}  // namespace plimsoll
