#include "models/family.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

constexpr std::array kFamilies = {
#define FAMILY(name) &name##_family,
#include "models/families.def"
#undef FAMILY
};

const FamilyRule* find(std::string_view model_type) {
  const auto* at = std::find_if(kFamilies.begin(), kFamilies.end(),
                                [&](const FamilyRule* rule) { return rule->model_type == model_type; });
  return at == kFamilies.end() ? nullptr : *at;
}

}  // namespace

const FamilyRule& family_of(const ConfigReader& in) {
  const std::string type = in.text("model_type", "");
  if (const FamilyRule* rule = find(type)) return *rule;
  std::vector<std::string> known;
  for (const FamilyRule* rule : kFamilies) known.emplace_back(rule->model_type);
  in.fail(formatted("model_type '{}' is not supported; supported: {}", type, join(known, ", ")));
}

const FamilyRule& family_of(const ModelSpec& spec) {
  const FamilyRule* rule = find(spec.family);
  check_internal(rule != nullptr, "a model of no family");
  return *rule;
}

std::vector<std::string> unquantised_modules(const ModelSpec& spec) {
  const std::string_view end = family_of(spec).unquantised;
  return end.empty() ? std::vector<std::string>() : std::vector<std::string>{std::string(end)};
}

std::string scoring_architecture(const FamilyRule& family) {
  if (!family.scoring_name.empty()) return std::string(family.scoring_name);
  return std::string(family.architecture.substr(0, family.architecture.find("For"))) +
         "ForSequenceClassification";
}

}  // namespace plimsoll
