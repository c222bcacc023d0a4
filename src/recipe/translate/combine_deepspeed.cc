// Files of DeepSpeed: what offloads is a tier of memory; what would change the experiment is refused.
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

struct Zero {
  int64_t stage = 0;
  bool states = false;   // the optimizer is offloaded
  bool weights = false;  // the weights are
};

bool leaves(const Node& config, const char* key) {
  const Node* device = find_node(config, formatted("zero_optimization.{}.device", key));
  return device != nullptr && !is_off(*device);
}

// accelerate has keys of its own for it.
bool leaves_by_accelerate(const Node& config, const char* key) {
  const Node* device = find_node(config, key);
  return device != nullptr && !is_off(*device);
}

std::optional<Zero> read_zero(const Node& config) {
  if (const Node* stage = find_node(config, "zero_stage")) {
    const auto number = read_foreign_whole(*stage);
    if (!number) return std::nullopt;
    return Zero{*number, leaves_by_accelerate(config, "offload_optimizer_device"),
                leaves_by_accelerate(config, "offload_param_device")};
  }
  const Node* stage = find_node(config, "zero_optimization.stage");
  if (stage == nullptr) return Zero{};
  const auto number = read_foreign_whole(*stage);
  if (!number) return std::nullopt;
  return Zero{*number, leaves(config, "offload_optimizer"), leaves(config, "offload_param")};
}

// The files that axolotl (deepspeed_configs/) and LLaMA-Factory (examples/deepspeed/) ship, by name: recipes
// name them from the tool's own folder. Keys that they leave to the recipe are "auto".
struct ShippedZero {
  std::string_view file;
  Zero zero;
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

// A tier stands for which of states, gradients and weights leave the device; none where nothing does.
std::string tier_of(const Zero& zero) {
  if (zero.weights) return "minimal";
  if (!zero.states) return "";
  return zero.stage == 3 ? "stage3" : "stage2_offload";
}

// Reads this layer's keys; the tier becomes a part, for a later layer may name the device.
bool read_offload(Layer& layer, const std::vector<const Said*>& from) {
  const Said* config = layer.part("@deepspeed");
  const Said* stage = layer.part("@stage");
  std::optional<Zero> zero = Zero{stage == nullptr ? 0 : read_foreign_whole(stage->value).value_or(-1),
                                  is_true(layer.part("@cpu_offload")), false};
  try {
    if (config != nullptr) {
      const auto tree = deepspeed_config(layer, config->value);
      if (tree) check_experiment(*tree, layer);
      zero = tree ? read_zero(*tree) : shipped_zero(layer, named_file(config->value))->zero;
    }
  } catch (const UsageError& error) {
    layer.refuse(*config, error.what());
    return false;
  }
  if (!zero || zero->stage < 0 || zero->stage > 3) {
    layer.refuse(*from.front(), "expected a ZeRO stage from 0 to 3");
    return false;
  }
  Said tier = *from.front();
  tier.value = scalar_at(tier.value, tier_of(*zero));
  layer.say("@tier", std::move(tier));
  return true;
}

// Returns true if there is a place to offload to, and no key of ours names what leaves the device.
bool offloads(const Layer& layer) {
  const Node* parts = layer.given("memory.offload");
  const bool is_stated = parts != nullptr ? !parts->is_word("auto") && parts->kind != Node::Kind::null
                                          : layer.before().memory.offload.has_value();
  return layer.has_offload_target() && !is_stated;
}

}  // namespace

std::optional<Node> deepspeed_config(const Layer& layer, const Node& said) {
  const Node& named = named_file(said);
  if (shipped_zero(layer, named) != nullptr) return std::nullopt;
  return layer.read_file(named);
}

void combine_deepspeed(Layer& layer) {
  const auto from = present({layer.part("@deepspeed"), layer.part("@stage"), layer.part("@cpu_offload")});
  if (from.empty()) return;
  const bool is_new = layer.says({"@deepspeed", "@stage", "@cpu_offload"});
  if (is_new && !read_offload(layer, from)) return;
  const Said* tier = layer.part("@tier");
  if (tier == nullptr) return;
  const std::string words = tier->value.text;
  if (!is_new && layer.given("memory.tier") != nullptr) {  // given in our words: no longer theirs
    Said none = *tier;
    none.value.text.clear();
    return layer.say("@tier", std::move(none));
  }
  const auto& before = layer.before().memory.tier;
  const bool is_set = before == words && !words.empty();
  if (!words.empty() && offloads(layer)) {
    if (is_set && !is_new) return;
    for (const Said* said : from) layer.withdraw(*said);
    return layer.emit("memory.tier", words, from);
  }
  if (!is_new && !is_set) return;
  if (!is_new) layer.emit("memory.tier", "null", from);
  for (const Said* said : from)
    layer.ignore(
        *said, words.empty()
                   ? "several devices (devices: N) divide optimizer states, and gradients with memory.shard: "
                     "gradients; weights are whole at each"
                   : "the planner offloads what the budget asks for to memory.disk (memory.tier fixes it)");
}

}  // namespace plimsoll
