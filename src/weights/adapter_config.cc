#include "weights/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"
#include "base/format.h"
#include "base/printable.h"
#include "base/units.h"
#include "files/file.h"
#include "files/json.h"
#include "files/json_values.h"
#include "formats/model_folder.h"
#include "models/config_reader.h"
#include "models/wrapper.h"

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

// PEFT writes null for a key that is not set.
bool read_flag(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null() && found->get<bool>();
}

std::string read_word(const Json& config, const char* key, const char* otherwise) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? otherwise : found->get<std::string>();
}

int64_t read_rank(const Json& value, const std::string& where) {
  if (value.is_number_integer() && value >= 1 && value <= kMostRank) return value.get<int64_t>();
  throw DamagedError(
      formatted("{} is {}, a whole number from 1 to {} is expected", where, value.dump(), kMostRank));
}

double read_alpha(const Json& value, const LoraOptions& lora, const std::string& where) {
  if (!value.is_number())
    throw DamagedError(formatted("{} is {}, a number is expected", where, value.dump()));
  const double alpha = value.get<double>();
  // The smallest rank has the largest scale.
  int64_t least = lora.r;
  for (const auto& [pattern, rank] : lora.rank_pattern) least = std::min(least, rank);
  const auto r = static_cast<double>(least);
  if (std::abs(alpha / (lora.rslora ? std::sqrt(r) : r)) <= kLargestScale) return alpha;
  throw DamagedError(formatted("{} is {}, with rank {} more than {} times the adapter's values", where,
                               value.dump(), least, format_count(kLargestScale)));
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

int64_t read_layer(const Json& value, const std::string& where) {
  if (value.is_number_integer() && value >= 0 && value < kMostLayers) return value.get<int64_t>();
  throw DamagedError(formatted("{}: 'layers_to_transform' holds {}, whole numbers from 0 on are expected",
                               where, value.dump()));
}

void read_layers(const Json& config, const std::string& where, LoraOptions& lora) {
  lora.layers.clear();
  lora.layers_pattern.clear();
  if (is_empty(config, "layers_to_transform")) return;
  const Json& layers = config["layers_to_transform"];
  if (!layers.is_array()) lora.layers.push_back(read_layer(layers, where));
  if (layers.is_array())
    for (const Json& layer : layers) lora.layers.push_back(read_layer(layer, where));
  if (config.contains("layers_pattern")) lora.layers_pattern = read_texts(config["layers_pattern"]);
}

// Keys that are read, or that do not change what the adapter's tensors compute: whatever their value is.
// "..._config" are of ways to begin (init_lora_weights) or of megatron_config, which are refused themselves.
constexpr std::array kKnownKeys = {"alpha_pattern",
                                   "auto_mapping",
                                   "base_model_name_or_path",
                                   "bias",
                                   "corda_config",
                                   "ensure_weight_tying",
                                   "eva_config",
                                   "fan_in_fan_out",
                                   "inference_mode",
                                   "init_lora_weights",
                                   "layers_pattern",
                                   "layers_to_transform",
                                   "loftq_config",
                                   "lora_alpha",
                                   "lora_dropout",
                                   "lora_ga_config",
                                   "megatron_core",
                                   "modules_to_save",
                                   "peft_type",
                                   "peft_version",
                                   "qalora_group_size",
                                   "r",
                                   "rank_pattern",
                                   "revision",
                                   "runtime_config",
                                   "target_modules",
                                   "task_type",
                                   "use_dora",
                                   "use_rslora"};

// The effect in PEFT of a key that is unknown here is unknown too, unless the key is off.
void refuse_unknown(const Json& config, const std::string& where) {
  for (const auto& [key, value] : config.items()) {
    if (key == "exclude_modules" && value == kNoTextModules)
      continue;  // of a text model, which has none of those
    const bool off = value.is_null() || value == false ||
                     (!value.is_number() && !value.is_boolean() && (value.empty() || value == ""));
    if (off || std::find(kKnownKeys.begin(), kKnownKeys.end(), key) != kKnownKeys.end()) continue;
    throw UsageError(formatted(
        "{}: '{}' is not supported: what PEFT computes with it is not computed here. Without it, or null "
        "or false, the adapter is plain LoRA",
        where, printable(key)));
  }
}

// Refuses an adapter whose start changed its base. PEFT takes what PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA
// begin with out of the base again whenever it loads such a folder; over the base as it is the adapter means
// something else.
void refuse_start(const Json& config, const std::string& where) {
  const auto found = config.find("init_lora_weights");
  if (found == config.end() || found->is_null() || found->is_boolean()) return;
  const std::string start = found->get<std::string>();
  for (const char* harmless : {"gaussian", "orthogonal", "eva"})
    if (start == harmless) return;
  throw UsageError(formatted(
      "{}: 'init_lora_weights' is {}: the adapter belongs to a base that this start has changed, not "
      "to the model as its folder has it. Save it with PEFT as an adapter of the model itself, "
      "model.save_pretrained(FOLDER, "
      "path_initial_model_for_weight_conversion=FOLDER_OF_THE_ADAPTER_BEFORE_TRAINING); "
      "where that is not there, make a model of both with PEFT: "
      "PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload().save_pretrained(FOLDER)",
      where, found->dump()));
}

// Objects keep their order, which decides among patterns.
Json read_ordered(const fs::path& folder) {
  read_config(folder, "adapter_config.json");  // says what is wrong with the file
  return parse_ordered_json(read_text(folder / "adapter_config.json", kMostBytes),
                            (folder / "adapter_config.json").string());
}

// With it, an adapter of the embedding is the head's too.
bool names_tied(const Json& config) {
  if (!read_flag(config, "ensure_weight_tying")) return false;
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
  read_values(where, [&] {
    if (read_word(config, "peft_type", "") != "LORA") throw UsageError(where + ": peft_type must be LORA");
    read_word(config, "task_type", "");
    if (read_word(config, "bias", "none") != "none") throw UsageError(where + ": 'bias' is not supported");
    refuse_unknown(config, where);
    refuse_start(config, where);
    if (names_tied(config))
      throw UsageError(where +
                       ": 'ensure_weight_tying' is not supported: one adapter of the embedding and the head");
    lora.start = AdapterStart::lora;
    lora.modules_to_save = read_saved_modules(config, where, scores);
    lora.r = read_rank(config.at("r"), where + ": 'r'");
    lora.rslora = read_flag(config, "use_rslora");
    lora.dora = read_flag(config, "use_dora");
    lora.rank_pattern.clear();
    lora.alpha_pattern.clear();
    if (!is_empty(config, "rank_pattern"))
      for (const auto& [pattern, rank] : config["rank_pattern"].items())
        lora.rank_pattern.emplace_back(pattern, read_rank(rank, where + ": 'rank_pattern'"));
    lora.alpha = read_alpha(config.at("lora_alpha"), lora, where + ": 'lora_alpha'");
    if (!is_empty(config, "alpha_pattern"))
      for (const auto& [pattern, alpha] : config["alpha_pattern"].items())
        lora.alpha_pattern.emplace_back(pattern, read_alpha(alpha, lora, where + ": 'alpha_pattern'"));
    read_layers(config, where, lora);
    const auto& targets = config.at("target_modules");
    lora.targets = targets.is_string() ? std::vector<std::string>{} : targets.get<std::vector<std::string>>();
    if (targets.is_string() && targets != "all-linear")
      throw UsageError(where + ": 'target_modules' as a pattern is not supported; list the modules");
  });
}

Json adapter_config(const LoraOptions& lora, const std::vector<std::string>& targets,
                    const std::vector<std::string>& heads) {
  // The adapter's start is saved with it: twice the rank at the same scale.
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
