#include "recipe/known_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "recipe/hub.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// No folder of this name is looked for: a path that recipes may hold.
constexpr const char* kCatalogueFolder = "/built-in catalogue";

void refuse_quantised(const std::string& name) {
  const auto quantised = quantised_name(name);
  if (!quantised) return;
  if (const auto base = quantised->base_shape())
    throw UsageError(
        formatted("{}: holds weights quantised for {}, and is not on this machine; name the model that "
                  "they are made of: {}",
                  name, quantised->format, base->name));
}

}  // namespace

std::optional<std::string> model_of_catalogue(const std::string& name, ModelFiles& files) {
  const auto found = find_shape(name);
  if (!found) {
    refuse_quantised(name);
    return std::nullopt;
  }
  if (find_in_hub_cache(HubKind::model, found->name)) return found->name;
  const std::string why = why_not_trained(*found->shape);
  if (!why.empty())
    throw UsageError(
        formatted("{}: is known ({} B parameters), and this version does not train it: {}", found->name,
                  format_number("%.2f", static_cast<double>(found->shape->parameters) / 1e9), why));
  const fs::path folder = fs::path(kCatalogueFolder) / found->name;
  if (!files.holds(folder)) files.hold(folder, found->config_json());
  return folder.string();
}

std::string shown_model(const fs::path& model) {
  const fs::path name = model.lexically_relative(kCatalogueFolder);
  return name.empty() || name.string().starts_with("..") ? model.string() : name.string();
}

std::string shown_config(const fs::path& model) {
  const std::string name = shown_model(model);
  if (name != model.string()) return formatted("{} of the built-in catalogue", name);
  return (model / "config.json").string();
}

std::optional<KnownModel> known_model(const fs::path& folder, ModelFiles& files) {
  if (files.holds(folder)) {
    const auto named = find_shape(folder.lexically_relative(kCatalogueFolder).string());
    if (!named) return std::nullopt;
    return KnownModel{*named, true, {}};
  }
  const auto named = find_shape(model_name(folder));
  if (!named) return std::nullopt;
  return KnownModel{*named, false, differences(files.config(folder), *named)};
}

std::string nearest_words(std::string_view name) {
  const std::vector<std::string> near = nearest_shapes(name);
  return ", nor is it in the catalogue of known models" +
         (near.empty() ? "" : ", where the nearest are " + join(near, ", "));
}

std::string source_words(const ModelShape& shape) {
  return shape.source.substr(0, shape.source.find_first_of("@;"));
}

}  // namespace plimsoll
