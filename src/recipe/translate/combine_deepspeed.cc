// Files of DeepSpeed: how they divide and offload; what would change the experiment is refused.
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/combine_shard.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

bool leaves(const Node& config, const char* key) {
  const Node* device = find_node(config, formatted("zero_optimization.{}.device", key));
  return device != nullptr && !is_off(*device);
}

// accelerate has keys of its own for it.
bool leaves_by_accelerate(const Node& config, const char* key) {
  const Node* device = find_node(config, key);
  return device != nullptr && !is_off(*device);
}

std::optional<Division> read_zero(const Node& config) {
  if (const Node* stage = find_node(config, "zero_stage")) {
    const auto number = read_foreign_whole(*stage);
    if (!number) return std::nullopt;
    return Division{*number, leaves_by_accelerate(config, "offload_optimizer_device"),
                    leaves_by_accelerate(config, "offload_param_device")};
  }
  const Node* stage = find_node(config, "zero_optimization.stage");
  if (stage == nullptr) return Division{0, false, false};
  const auto number = read_foreign_whole(*stage);
  if (!number) return std::nullopt;
  return Division{*number, leaves(config, "offload_optimizer"), leaves(config, "offload_param")};
}

// The files that axolotl (deepspeed_configs/) and LLaMA-Factory (examples/deepspeed/) ship, by name: recipes
// name them from the tool's own folder. Keys that they leave to the recipe are "auto".
struct ShippedZero {
  std::string_view file;
  Division zero;
};
constexpr std::array kShippedZero = {ShippedZero{"ds_z0_config.json", {0, false, false}},
                                     ShippedZero{"ds_z2_config.json", {2, false, false}},
                                     ShippedZero{"ds_z2_autotp_config.json", {2, false, false}},
                                     ShippedZero{"ds_z2_offload_config.json", {2, true, false}},
                                     ShippedZero{"ds_z3_config.json", {3, false, false}},
                                     ShippedZero{"ds_z3_offload_config.json", {3, true, true}},
                                     ShippedZero{"zero1.json", {1, false, false}},
                                     ShippedZero{"zero1_torch_compile.json", {1, false, false}},
                                     ShippedZero{"zero2.json", {2, false, false}},
                                     ShippedZero{"zero2_torch_compile.json", {2, false, false}},
                                     ShippedZero{"zero3.json", {3, false, false}},
                                     ShippedZero{"zero3_bf16.json", {3, false, false}},
                                     ShippedZero{"zero3_bf16_cpuoffload_all.json", {3, true, true}},
                                     ShippedZero{"zero3_bf16_cpuoffload_params.json", {3, false, true}}};

// Checks how devices exchange: here gradients travel in their own type, weights and pieces as they are.
void check_exchange(const Node& config) {
  const Node* type = find_node(config, "communication_data_type");
  if (type != nullptr && !is_off(*type) && !type->is_word("fp32"))
    throw UsageError(
        formatted("'communication_data_type: {}' rounds what is sent, which does not exist here: gradients "
                  "travel in their own type; remove it, or set it to fp32",
                  as_text(*type)));
  for (const char* key :
       {"zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights"}) {
    const Node* node = find_node(config, formatted("zero_optimization.{}", key));
    if (node != nullptr && !is_off(*node))
      throw UsageError(formatted(
          "'{}': quantised collectives (ZeRO++) are lossy and do not exist here; set it to false", key));
  }
  const Node* group = find_node(config, "zero_optimization.mics_shard_size");
  if (group != nullptr && read_foreign_whole(*group).value_or(0) > 0)
    throw UsageError(
        "'mics_shard_size' divides among some of the devices, which does not exist here; remove it");
}

// Checks keys of such a file outside of ZeRO: keys that change the experiment must say "auto", or nothing
// new.
void check_experiment(const Node& config, const Layer& layer) {
  const Node* fp16 = find_node(config, "fp16.enabled");
  const bool trains_in_fp16 = layer.part("@fp16") != nullptr && is_true(layer.part("@fp16"));
  if (fp16 != nullptr && fp16->is_word("true") && !trains_in_fp16)
    throw UsageError("'fp16.enabled': the recipe says nothing of fp16; say fp16: true there");
  for (const auto& [key, what] : {std::pair{"data_efficiency.enabled", "data efficiency"},
                                  std::pair{"progressive_layer_drop.enabled", "dropping layers"}}) {
    const Node* node = find_node(config, key);
    if (node != nullptr && node->is_word("true"))
      throw UsageError(formatted("'{}': {} does not exist here", key, what));
  }
  check_exchange(config);
  for (const char* key : {"optimizer", "scheduler", "compression_training", "sparse_attention"}) {
    const Node* node = find_node(config, key);
    if (node == nullptr || is_off(*node)) continue;
    const Node* type = find_node(*node, "type");
    const bool is_usual = type != nullptr && (type->is_word("AdamW") || type->is_word("WarmupLR") ||
                                              type->is_word("WarmupDecayLR"));
    const Node* parameters = find_node(*node, "params");
    const bool is_automatic =
        parameters == nullptr ||
        std::all_of(parameters->items.begin(), parameters->items.end(),
                    [](const Node& item) { return item.is_word("auto") || item.is_word("true"); });
    if (!is_usual || !is_automatic)
      throw UsageError(formatted("'{}' of its own does not exist here; say it in the recipe", key));
  }
}

// A section of accelerate's may name DeepSpeed's own file.
const Node& named_file(const Node& said) {
  const Node* file = find_node(said, "deepspeed_config_file");
  return file == nullptr || is_off(*file) ? said : *file;
}

const ShippedZero* shipped_zero(const Layer& layer, const Node& said) {
  const std::filesystem::path path = layer.source().folder / layer.locate(said).text;
  std::error_code ignored;
  if (said.kind != Node::Kind::scalar || std::filesystem::exists(path, ignored)) return nullptr;
  for (const ShippedZero& shipped : kShippedZero)
    if (path.filename() == shipped.file) return &shipped;
  return nullptr;
}

}  // namespace

std::optional<Node> deepspeed_config(const Layer& layer, const Node& said) {
  const Node& named = named_file(said);
  if (shipped_zero(layer, named) != nullptr) return std::nullopt;
  return layer.read_file(named);
}

std::vector<const Said*> keys_of_deepspeed(const Layer& layer) {
  std::vector<const Said*> keys =
      present({layer.part("@deepspeed"), layer.part("@stage"), layer.part("@cpu_offload")});
  std::erase_if(keys,
                [&](const Said* said) { return said == layer.part("@deepspeed") && is_off(said->value); });
  return keys;
}

std::optional<Division> read_deepspeed_division(Layer& layer, const std::vector<const Said*>& from) {
  const Said* config = from.front() == layer.part("@deepspeed") ? from.front() : nullptr;
  const Said* stage = layer.part("@stage");
  std::optional<Division> division =
      Division{stage == nullptr ? 0 : read_foreign_whole(stage->value).value_or(-1),
               is_true(layer.part("@cpu_offload")), false};
  try {
    if (config != nullptr) {
      const auto tree = deepspeed_config(layer, config->value);
      if (tree) check_experiment(*tree, layer);
      division = tree ? read_zero(*tree) : shipped_zero(layer, named_file(config->value))->zero;
    }
  } catch (const UsageError& error) {
    layer.refuse(*config, error.what());
    return std::nullopt;
  }
  if (division && *division->stage >= 0 && *division->stage <= 3) return division;
  layer.refuse(*from.front(), "expected a ZeRO stage from 0 to 3");
  return std::nullopt;
}

}  // namespace plimsoll
