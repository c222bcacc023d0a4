#include "prepare/model_paths.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json_text.h"
#include "files/json_values.h"
#include "formats/model_folder.h"
#include "recipe/hub.h"
#include "weights/quantised_weights.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::string text_of(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<fs::path> base_of_adapter(const fs::path& adapter) {
  const nlohmann::json config = read_config(adapter, "adapter_config.json");
  const std::string named = text_of(config, "base_model_name_or_path");
  if (named.empty()) return std::nullopt;
  for (const fs::path& candidate : {fs::path(named), adapter / named})
    if (fs::exists(candidate / "config.json")) return candidate;
  if (!is_hub_name(named, true)) return std::nullopt;
  if (auto version = find_in_hub_cache(HubKind::model, named, text_of(config, "revision"))) return version;
  return find_in_hub_cache(HubKind::model, named);
}

ModelPaths find_model(const fs::path& named, const std::optional<fs::path>& named_adapter) {
  const fs::path folder = model_folder(named);
  const auto adapter = named_adapter ? std::optional(model_folder(*named_adapter)) : std::nullopt;
  if (!fs::is_directory(folder)) throw UsageError(folder.string() + ": no such folder");
  if (!fs::exists(folder / "adapter_config.json")) return {folder, adapter};
  if (adapter)
    throw UsageError(formatted("--adapter: {} is an adapter itself; name its base model", folder.string()));
  if (const auto base = base_of_adapter(folder)) return {*base, folder};
  throw UsageError(
      formatted("{}: base_model_name_or_path names no model folder here; name the model itself, with "
                "--adapter {}",
                (folder / "adapter_config.json").string(), folder.string()));
}

ModelSpec read_model(const ModelPaths& paths, ModelFiles& files) {
  ModelSpec model = files.spec(paths.base);
  if (!model.encoder || !has_weights(paths.base)) return model;
  const ModelFolder base = ModelFolder::open(paths.base);
  // True where the checkpoint lacks the layer, or the adapter has it as a whole.
  const auto is_fresh = [&](const std::string& layer) {
    const std::string weight = layer + ".weight";
    if (layer.empty() || !base.contains(weight)) return !layer.empty();
    return paths.adapter && has_weights(*paths.adapter, "adapter_model") &&
           ModelFolder::open(*paths.adapter, "adapter_model").contains("base_model.model." + weight);
  };
  model.encoder->fresh_pooler = is_fresh(model.encoder->pooler);
  model.encoder->fresh_words = is_fresh(model.encoder->words_layer);
  return model;
}

std::optional<Recipe> recipe_of_run(const fs::path& folder, const SharedSources& sources) {
  const fs::path file = folder / "recipe.yaml";
  if (!fs::exists(file)) return std::nullopt;
  Overrides none;
  none.sources = sources;
  return load_recipe(file.string(), none).recipe;
}

DType trained_type(const ModelPaths& paths, const SharedSources& sources) {
  if (const auto run = recipe_of_run(paths.adapter.value_or(paths.base), sources))
    return run->precision.weights;
  const nlohmann::json& config = sources->models->config(paths.base);
  for (const char* key : {"dtype", "torch_dtype"})
    if (const auto found = config.find(key); found != config.end() && *found == "bfloat16")
      return DType::bf16;
  return DType::f32;
}

QuantiseOptions quantisation_of(const Recipe& recipe) {
  QuantiseOptions options{.nested = recipe.method.double_quant};
  if (recipe.method.bits == 8) options.format = WeightFormat::int8;
  return options;
}

std::optional<QuantiseOptions> quantisation_of(const ModelPaths& paths, const SharedSources& sources) {
  ModelFiles& files = *sources->models;
  std::optional<QuantiseOptions> options =
      stored_quantisation(paths.base, files.config(paths.base), [&] { return files.spec(paths.base); });
  const auto run = paths.adapter ? recipe_of_run(*paths.adapter, sources) : std::nullopt;
  if (!run) return options;
  const Recipe& recipe = *run;
  if (recipe.method.type != MethodType::qlora) return options;
  if (!options) options = quantisation_of(recipe);
  // Runs of before this key quantised every module.
  options->kept = recipe.method.unquantised.value_or(std::vector<std::string>());
  return options;
}

std::vector<int32_t> stop_ids(const fs::path& base, bool has_tokenizer, ModelFiles& files) {
  if (has_tokenizer) return files.special_tokens(base).eos;
  const std::string kOwn = "config.json";
  for (const std::string& name : {std::string("generation_config.json"), kOwn}) {
    if (!fs::exists(base / name)) continue;
    const nlohmann::json config = name == kOwn ? files.config(base) : read_config(base, name);
    const auto eos_of = [](const nlohmann::json& json) {
      return json.value("eos_token_id", nlohmann::json());
    };
    nlohmann::json eos = eos_of(config);
    const auto text = config.find("text_config");  // of a model of images and text
    if (eos.is_null() && text != config.end() && text->is_object()) eos = eos_of(*text);
    if (eos.is_null()) continue;
    const nlohmann::json ids = eos.is_array() ? eos : nlohmann::json::array({eos});
    return read_values((base / name).string() + ": eos_token_id", [&] { return get_wholes<int32_t>(ids); });
  }
  return {};
}

}  // namespace plimsoll
