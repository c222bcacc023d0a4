#include "recipe/translate/defaults.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/option.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"

namespace plimsoll {
namespace {

struct Default {
  Tool tool;
  Version since;  // {}: since the oldest known version
  Version until;  // {}: still so; else the first version where it is not so
  std::string_view key;
  std::string_view value;
};

constexpr Version kAlways = {};
constexpr Version v(int major, int minor, int patch = 0) { return {{major, minor, patch}}; }

constexpr std::array kKnown = {KnownVersions{Tool::llama_factory, "llama-factory", v(0, 9, 2), v(0, 9, 5)},
                               KnownVersions{Tool::axolotl, "axolotl", v(0, 14), v(0, 19)},
                               KnownVersions{Tool::torchtune, "torchtune", v(0, 4), v(0, 6, 1)},
                               KnownVersions{Tool::trl, "trl", v(0, 12, 2), v(1, 16)}};

// Facts with the file and line that state them. TA: transformers 5.23.0, transformers/training_args.py, which
// LLaMA-Factory and TRL begin from.
constexpr std::array kDefaults = {
    // LLaMA-Factory 0.9.5: src/llamafactory/hparams/
    Default{Tool::llama_factory, kAlways, kAlways, "data.max_length", "2048"},  // data_args.py:46
    Default{Tool::llama_factory, kAlways, kAlways, "data.truncation",
            "right"},  // data/processor/supervised.py:72
    Default{Tool::llama_factory, kAlways, kAlways, "batch.effective", "8"},     // TA:777
    Default{Tool::llama_factory, kAlways, kAlways, "optimizer.lr", "5e-5"},     // TA:787
    Default{Tool::llama_factory, kAlways, kAlways, "schedule.name", "linear"},  // TA:788
    Default{Tool::llama_factory, kAlways, kAlways, "schedule.warmup", "0"},     // TA:798
    Default{Tool::llama_factory, kAlways, kAlways, "schedule.epochs", "3"},     // TA:778
    Default{Tool::llama_factory, kAlways, kAlways, "method.type", "lora"},      // finetuning_args.py:464
    Default{Tool::llama_factory, kAlways, kAlways, "method.r", "8"},            // finetuning_args.py:77
    Default{Tool::llama_factory, kAlways, kAlways, "log.every", "500"},         // TA:1001
    Default{Tool::llama_factory, kAlways, kAlways, "save.every", "500"},        // TA:1183
    Default{Tool::llama_factory, kAlways, kAlways, "save.keep", "all"},         // TA:1201
    // axolotl 0.19.0: src/axolotl/
    Default{Tool::axolotl, kAlways, kAlways, "data.max_length", "512"},   // utils/schemas/config.py:671
    Default{Tool::axolotl, kAlways, kAlways, "data.truncation", "drop"},  // utils/data/utils.py:334
    Default{Tool::axolotl, kAlways, kAlways, "batch.effective", "1"},     // utils/schemas/training.py:71
    Default{Tool::axolotl, kAlways, kAlways, "method.type", "full"},      // utils/schemas/peft.py:44
    Default{Tool::axolotl, kAlways, kAlways, "method.targets",
            "[q_proj, v_proj]"},  // PEFT 0.21.2 utils/constants.py:85
    Default{Tool::axolotl, kAlways, kAlways, "schedule.warmup", "axolotl"},  // core/builders/base.py:248
    Default{Tool::axolotl, kAlways, kAlways, "log.every", "500"},            // TA:1001
    Default{Tool::axolotl, kAlways, kAlways, "save.every", "epoch"},         // core/builders/base.py:517
    Default{Tool::axolotl, kAlways, kAlways, "save.keep", "4"},              // core/builders/base.py:520
    // torchtune 0.6.1: recipes/, torchtune/
    Default{Tool::torchtune, kAlways, kAlways, "save.every", "epoch"},  // recipes: save_checkpoint(epoch=...)
    Default{Tool::torchtune, kAlways, kAlways, "save.keep",
            "all"},  // training/checkpointing/_checkpointer.py
    Default{Tool::torchtune, kAlways, kAlways, "data.max_length",
            "null"},  // models/*/_tokenizer.py: max_seq_len
    Default{Tool::torchtune, kAlways, kAlways, "schedule.name",
            "constant"},  // recipes/full_finetune_single_device.py
    Default{Tool::torchtune, kAlways, kAlways, "schedule.warmup", "0"},            // the same
    Default{Tool::torchtune, kAlways, kAlways, "optimizer.weight_decay", "0.01"},  // torch.optim.AdamW
    Default{Tool::torchtune, kAlways, kAlways, "optimizer.max_grad_norm",
            "0"},                                                      // recipes: clip_grad_norm None
    Default{Tool::torchtune, kAlways, kAlways, "method.r", "8"},       // models/llama3/_model_builders.py:112
    Default{Tool::torchtune, kAlways, kAlways, "method.alpha", "16"},  // models/llama3/_model_builders.py:113
    // TRL 1.16.0: trl/trainer/
    Default{Tool::trl, kAlways, kAlways, "batch.effective", "8"},     // TA:777
    Default{Tool::trl, kAlways, kAlways, "schedule.name", "linear"},  // TA:788
    Default{Tool::trl, kAlways, kAlways, "schedule.warmup", "0"},     // TA:798
    Default{Tool::trl, kAlways, kAlways, "schedule.epochs", "3"},     // TA:778
    Default{Tool::trl, kAlways, kAlways, "method.type", "full"},      // model_config.py:86
    Default{Tool::trl, kAlways, kAlways, "method.dropout", "0.05"},   // model_config.py:98
    Default{Tool::trl, kAlways, kAlways, "method.targets",
            "[q_proj, v_proj]"},  // PEFT 0.21.2 utils/constants.py:85
    Default{Tool::trl, kAlways, kAlways, "method.double_quant", "false"},      // model_config.py:147
    Default{Tool::trl, kAlways, kAlways, "data.bos", "true"},                  // sft_trainer.py:1382
    Default{Tool::trl, kAlways, kAlways, "data.template", "trl"},              // sft_trainer.py:1341
    Default{Tool::trl, kAlways, kAlways, "data.train_on_prompt", "messages"},  // sft_config.py:261, 273
    Default{Tool::trl, kAlways, kAlways, "data.shuffle", "true"},              // TA: the trainer's sampler
    Default{Tool::trl, kAlways, kAlways, "save.every", "500"},                 // TA:1183
    Default{Tool::trl, kAlways, kAlways, "save.keep", "all"},                  // TA:1201
    Default{Tool::trl, v(0, 20), kAlways, "log.every", "10"},                  // base_config.py:55
    Default{Tool::trl, kAlways, v(0, 20), "log.every", "500"},                 // TA:1001
};

// A default of earlier versions of this program, where it decides how a run continues.
struct Once {
  Tool tool;
  std::string_view key;
  std::string_view value;
};
constexpr std::array kOnce = {
    Once{Tool::llama_factory, "save.every", "0"}, Once{Tool::llama_factory, "save.keep", "2"},
    Once{Tool::axolotl, "save.every", "0"},       Once{Tool::axolotl, "save.keep", "2"},
    Once{Tool::torchtune, "save.every", "0"},     Once{Tool::torchtune, "save.keep", "2"},
    Once{Tool::trl, "save.every", "0"},           Once{Tool::trl, "save.keep", "2"}};

// A default that earlier versions did not know.
void fill_newly(Layer& layer, std::string_view key, std::string_view value, std::string_view once) {
  if (layer.given(key) != nullptr || layer.emits(std::string(key) + ".")) return;
  layer.emit_default(key, value);
  layer.read_once_as(std::string(key), std::string(once));
}

std::string trl_precision(const Layer& layer) {
  if (layer.method() != MethodType::full) return "bf16";
  return layer.version() < v(0, 20) ? "fp32" : "bf16-master";
}

// transformers' example scripts (examples/pytorch/*/run_*.py) have TrainingArguments alone.
void fill_script_defaults(Layer& layer) {
  fill_newly(layer, "optimizer.lr", "5e-5", "2e-5");  // TA:787
  // TA:874: weights as they are loaded, and no autocast.
  if (layer.method() != MethodType::qlora) fill_newly(layer, "precision", "fp32", trl_precision(layer));
  layer.emit_default("log.every", "500");  // TA:1001
}

// The precision of trained tensors where the recipe states none. TRL trains in bf16 since 0.20
// (sft_config.py:110 there), before as transformers: in the type of the weights. axolotl's bf16 is auto
// (utils/schemas/config.py:561), which is weights in bf16 (utils/config/__init__.py: resolve_dtype).
void fill_precision(Layer& layer) {
  const bool is_full = layer.method() == MethodType::full;
  if (layer.tool() == Tool::llama_factory) layer.emit_default("precision", is_full ? "fp32" : "bf16");
  if (layer.tool() == Tool::trl) layer.emit_default("precision", trl_precision(layer));
  if (layer.tool() != Tool::axolotl) return;
  if (!is_full || keeps_whole_copy(layer) || !has_own_states(layer))
    return fill_newly(layer, "precision",
                      !is_full                  ? "bf16"
                      : keeps_whole_copy(layer) ? "bf16-master"
                                                : "bf16-pure",
                      "fp32");
  if (layer.given("precision") != nullptr || layer.emits("precision.")) return;
  for (const auto& [key, value] : kPureWeights) layer.emit_default(key, value);
  layer.read_once_as("precision", "fp32");
}

// trl/trainer/: dpo_config.py:151, reward_config.py:98, sft_config.py:144. Earlier versions of this program
// took that of SFT for all.
void fill_trl_rate(Layer& layer) {
  const Node* task = layer.given("task");
  const std::string name = task != nullptr ? task->text : "sft";
  if (name == "dpo" || name == "reward")
    fill_newly(layer, "optimizer.lr", name == "dpo" ? "1e-6" : "1e-4", "2e-5");
  else
    layer.emit_default("optimizer.lr", "2e-5");
}

// Fills in defaults that follow from other keys.
void fill_dependent_defaults(Layer& layer) {
  const Node* rank = layer.given("method.r");
  // finetuning_args.py:568: lora_alpha is twice the rank.
  if (layer.tool() == Tool::llama_factory && rank != nullptr && layer.method() != MethodType::full)
    layer.emit_default("method.alpha", std::to_string(2 * std::atoll(rank->text.c_str())));
  fill_precision(layer);
  if (layer.tool() == Tool::trl) fill_trl_rate(layer);
}

// A key about how a row becomes text: with a script of the user's own, the script decides that.
bool is_of_rows(std::string_view key) {
  return key == "data.template" || key == "data.train_on_prompt" || key == "data.bos";
}

bool holds(const Default& entry, const Layer& layer) {
  const Version version = layer.version();
  return entry.tool == layer.tool() && version >= entry.since &&
         (entry.until == kAlways || version < entry.until);
}

}  // namespace

std::string to_string(const Version& version) {
  const auto& [major, minor, patch] = version.parts;
  return formatted("{}.{}.{}", major, minor, patch);
}

const KnownVersions* known_versions(Tool tool) {
  const auto at =
      std::find_if(kKnown.begin(), kKnown.end(), [tool](const auto& k) { return k.tool == tool; });
  return at == kKnown.end() ? nullptr : &*at;
}

ToolVersion parse_tool_version(std::string_view text) {
  std::vector<std::string> words;
  for (const KnownVersions& known : kKnown) {
    words.emplace_back(known.word);
    if (!text.starts_with(known.word)) continue;
    const std::string_view rest = text.substr(known.word.size());
    if (rest.empty()) return {known.tool, known.newest, false};
    const std::vector<std::string> parts = split(rest.substr(1), '.');
    Version version;
    bool is_version = rest.front() == '-' && parts.size() <= version.parts.size();
    for (size_t i = 0; is_version && i < parts.size(); ++i) {
      const char* end = parts[i].data() + parts[i].size();
      const auto read = std::from_chars(parts[i].data(), end, version.parts[i]);
      is_version = read.ec == std::errc() && read.ptr == end && version.parts[i] >= 0;
    }
    if (!is_version)
      throw UsageError(formatted("--as: expected a version such as {}-{}, found '{}'", known.word,
                                 to_string(known.newest), text));
    if (version < known.oldest)
      throw UsageError(formatted("--as: the defaults of {} are known since {}, not those of {}",
                                 to_string(known.tool), to_string(known.oldest), to_string(version)));
    return {known.tool, version, false};
  }
  throw UsageError(formatted("--as: '{}' is no tool here; known are {}", text, join(words, ", ")));
}

void fill_tool_method(Layer& layer) {
  for (const Default& entry : kDefaults)
    if (holds(entry, layer) && entry.key == "method.type") layer.emit_default(entry.key, entry.value);
}

void note_trainers_method(Layer& layer) {
  if (layer.method() != MethodType::full || layer.says({"@method", "@use_lora"})) return;
  layer.note(kTrainersMethod,
             "these arguments name no adapter, and transformers' Trainer trains all weights: so does this "
             "(method.type: full); --method lora trains adapters");
}

namespace {

// Keys that a script of the user's own decides by itself where its command does not.
std::vector<std::string> left_to_script(const Layer& layer) {
  std::vector<std::string> keys;
  for (const char* key :
       {"optimizer.lr", "schedule.epochs", "data.max_length", "method.r", "method.alpha", "method.targets"}) {
    const bool is_of_adapters = find_option(key)->method != MethodType::full;
    const bool is_counted =
        key == std::string_view("schedule.epochs") && layer.given("schedule.max_steps") != nullptr;
    if (layer.given(key) == nullptr && !is_counted && !(is_of_adapters && layer.method() == MethodType::full))
      keys.emplace_back(key);
  }
  return keys;
}

}  // namespace

void fill_tool_defaults(Layer& layer) {
  if (!layer.tool()) return;
  const std::vector<std::string> left = left_to_script(layer);
  if (layer.is_of_scripts()) fill_script_defaults(layer);
  for (const Once& entry : kOnce)
    if (entry.tool == layer.tool() && layer.given(entry.key) == nullptr)
      layer.read_once_as(std::string(entry.key), std::string(entry.value));
  for (const Default& entry : kDefaults) {
    if (!holds(entry, layer)) continue;
    const bool is_adapter_key = find_option(entry.key)->method != MethodType::full;
    if (is_adapter_key && layer.method() < find_option(entry.key)->method) continue;
    if (!own_script(layer).empty() && is_of_rows(entry.key)) continue;
    layer.emit_default(entry.key, entry.value);
  }
  fill_dependent_defaults(layer);
  if (!own_script(layer).empty())
    layer.note(
        "rows",
        formatted(
            "what {} makes of a row is not in its command: here data.format, data.template and "
            "data.train_on_prompt say it{}",
            own_script(layer),
            left.empty()
                ? ""
                : formatted("; nor are its own {}, which it does not name: say them, or see what is taken by "
                            "`plimsoll recipe`",
                            join(left, ", "))));
}

}  // namespace plimsoll
