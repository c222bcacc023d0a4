#include "train/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"
#include "base/units.h"
#include "io/file.h"
#include "io/json.h"
#include "io/json_values.h"
#include "io/model_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMostRank = 1 << 20;        // as wide as models are
constexpr int64_t kLargestScale = 1'000'000;  // those in use are below 1,000
constexpr int64_t kMostBytes = 4 * kMiB;      // what read_config reads, once more

bool is_empty(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() || found->empty();
}

int64_t read_rank(const Json& value, const std::string& where) {
  if (value.is_number_integer() && value >= 1 && value <= kMostRank) return value.get<int64_t>();
  throw DamagedError(where + " is " + value.dump() + ", a whole number from 1 to " +
                     std::to_string(kMostRank) + " is expected");
}

double read_alpha(const Json& value, const LoraOptions& lora, const std::string& where) {
  const double alpha = value.get<double>();
  // The smallest rank has the largest scale.
  int64_t least = lora.r;
  for (const auto& [pattern, rank] : lora.rank_pattern) least = std::min(least, rank);
  const auto r = static_cast<double>(least);
  if (std::abs(alpha / (lora.rslora ? std::sqrt(r) : r)) <= kLargestScale) return alpha;
  throw DamagedError(where + " is " + value.dump() + ", with rank " + std::to_string(least) + " more than " +
                     format_count(kLargestScale) + " times the adapter's values");
}

std::vector<std::string> read_texts(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

// PEFT names both heads where a model scores sequences, whichever the model has; that head is the task's.
std::vector<std::string> read_saved_modules(const Json& config, const std::string& where, bool scores) {
  if (is_empty(config, "modules_to_save")) return {};
  std::vector<std::string> saved = read_texts(config["modules_to_save"]);
  const auto removed = std::erase_if(saved, [](const std::string& name) {
    return name == "score" || name == "classifier" || name == "pooler" || name == "bert.pooler.dense" ||
           name.starts_with("classification_head");
  });
  if (removed > 0 && !scores)
    throw UsageError(where +
                     ": its head scores sequences (modules_to_save: score), which task: reward and "
                     "classify are for");
  return saved;
}

void read_layers(const Json& config, LoraOptions& lora) {
  lora.layers.clear();
  lora.layers_pattern.clear();
  if (is_empty(config, "layers_to_transform")) return;
  const Json& layers = config["layers_to_transform"];
  lora.layers =
      layers.is_array() ? layers.get<std::vector<int64_t>>() : std::vector<int64_t>{layers.get<int64_t>()};
  if (config.contains("layers_pattern")) lora.layers_pattern = read_texts(config["layers_pattern"]);
}

// Objects keep their order, which decides among patterns.
Json read_ordered(const fs::path& folder) {
  read_config(folder, "adapter_config.json");  // says what is wrong with the file
  return parse_ordered_json(read_text(folder / "adapter_config.json", kMostBytes),
                            (folder / "adapter_config.json").string());
}

// With it, an adapter of the embedding is the head's too.
bool names_tied(const Json& config) {
  if (!config.value("ensure_weight_tying", false)) return false;
  for (const char* key : {"target_modules", "modules_to_save"})
    for (const std::string& name :
         config.contains(key) ? read_texts(config[key]) : std::vector<std::string>())
      if (name.find("embed") != std::string::npos || name.ends_with("lm_head")) return true;
  return false;
}

bool takes_all(const LoraOptions& lora) {
  return lora.targets.empty() ||
         std::find(lora.targets.begin(), lora.targets.end(), "all-linear") != lora.targets.end();
}

}  // namespace

void read_adapter_config(const fs::path& folder, LoraOptions& lora, bool scores) {
  const Json config = read_ordered(folder);
  const std::string where = (folder / "adapter_config.json").string();
  const auto refuse = [&](const char* key, bool set) {
    if (set) throw UsageError(where + ": '" + std::string(key) + "' is not supported");
  };
  read_values(where, [&] {
    if (config.value("peft_type", "") != "LORA") throw UsageError(where + ": peft_type must be LORA");
    refuse("bias", config.value("bias", "none") != "none");
    refuse("lora_bias", config.value("lora_bias", false));
    for (const char* key : {"exclude_modules", "target_parameters", "trainable_token_indices",
                            "layer_replication", "megatron_config"})
      refuse(key, !is_empty(config, key));
    if (names_tied(config))
      throw UsageError(where +
                       ": 'ensure_weight_tying' is not supported: one adapter of the embedding and the head");
    lora.start = AdapterStart::lora;
    lora.modules_to_save = read_saved_modules(config, where, scores);
    lora.r = read_rank(config.at("r"), where + ": 'r'");
    lora.rslora = config.value("use_rslora", false);
    lora.dora = config.value("use_dora", false);
    lora.rank_pattern.clear();
    lora.alpha_pattern.clear();
    if (!is_empty(config, "rank_pattern"))
      for (const auto& [pattern, rank] : config["rank_pattern"].items())
        lora.rank_pattern.emplace_back(pattern, read_rank(rank, where + ": 'rank_pattern'"));
    lora.alpha = read_alpha(config.at("lora_alpha"), lora, where + ": 'lora_alpha'");
    if (!is_empty(config, "alpha_pattern"))
      for (const auto& [pattern, alpha] : config["alpha_pattern"].items())
        lora.alpha_pattern.emplace_back(pattern, read_alpha(alpha, lora, where + ": 'alpha_pattern'"));
    read_layers(config, lora);
    const auto& targets = config.at("target_modules");
    lora.targets = targets.is_string() ? std::vector<std::string>{} : targets.get<std::vector<std::string>>();
    if (targets.is_string() && targets != "all-linear")
      throw UsageError(where + ": 'target_modules' as a pattern is not supported; list the modules");
  });
}

Json adapter_config(const LoraOptions& lora, const std::vector<std::string>& targets,
                    const std::vector<std::string>& heads) {
  // What an adapter began with is saved beside it: twice the rank at the same scale.
  const bool doubled = lora.start != AdapterStart::lora;
  const int64_t ranks_of = doubled ? 2 : 1;
  const double alphas_of = !doubled ? 1.0 : lora.rslora ? std::numbers::sqrt2 : 2.0;
  Json ranks = Json::object(), alphas = Json::object();
  for (const auto& [pattern, rank] : lora.rank_pattern) ranks[pattern] = ranks_of * rank;
  for (const auto& [pattern, alpha] : lora.alpha_pattern) alphas[pattern] = alphas_of * alpha;
  std::vector<std::string> saved = lora.modules_to_save;
  saved.insert(saved.end(), heads.begin(), heads.end());
  const auto or_null = [](const auto& list) { return list.empty() ? Json(nullptr) : Json(list); };
  return {{"alpha_pattern", alphas},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layers_pattern", or_null(lora.layers_pattern)},
          {"layers_to_transform", or_null(lora.layers)},
          {"lora_alpha", alphas_of * lora.alpha},
          {"lora_dropout", lora.dropout},
          {"modules_to_save", or_null(saved)},
          {"peft_type", "LORA"},
          {"r", ranks_of * lora.r},
          {"rank_pattern", ranks},
          {"target_modules", takes_all(lora) ? targets : lora.targets},
          {"use_dora", lora.dora},
          {"use_rslora", lora.rslora}};
}

}  // namespace plimsoll
