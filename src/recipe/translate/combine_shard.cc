#include "recipe/translate/combine_shard.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/format.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

// memory.shard by stage.
constexpr std::array<std::string_view, 4> kShards = {"none", "states", "gradients", "weights"};

constexpr std::array<std::string_view, 9> kKeys = {"@deepspeed",    "@stage",        "@cpu_offload",
                                                   "@fsdp",         "@fsdp_config",  "@fsdp_strategy",
                                                   "@fsdp_reshard", "@fsdp_offload", "@distributed"};

// Keys that are off, or of another kind of launch than the one in force.
void ignore_idle(Layer& layer, const std::vector<const Said*>& used) {
  for (const std::string_view name : kKeys) {
    const Said* said = layer.part(name);
    if (said == nullptr || !layer.says({name}) || std::find(used.begin(), used.end(), said) != used.end())
      continue;
    const bool is_idle = is_off(said->value);
    layer.ignore(*said, is_idle ? "off, as here" : "another key says what several devices divide", is_idle);
  }
}

// A tier stands for which of states, gradients and weights leave the device; none where nothing does.
std::string tier_of(const Division& division) {
  if (division.weights) return "minimal";
  if (!division.states) return "";
  return division.stage == 3 ? "stage3" : "stage2_offload";
}

// Returns true if there is a place to offload to, and no key of ours names what leaves the device.
bool offloads(const Layer& layer) {
  const Node* parts = layer.given("memory.offload");
  const bool is_stated = parts != nullptr ? !parts->is_word("auto") && parts->kind != Node::Kind::null
                                          : layer.before().memory.offload.has_value();
  return layer.has_offload_target() && !is_stated;
}

// Adafactor's statistics are of whole matrices, which memory.shard: auto leaves whole.
bool divides(const Layer& layer) {
  const Node* optimizer = layer.given("optimizer.name");
  return optimizer != nullptr ? !optimizer->is_word("adafactor")
                              : layer.before().optimizer.name != OptimizerKind::adafactor;
}

// Reads this layer's keys; the tier becomes a part, for a later layer may name the device.
void take(Layer& layer, const Division& division, const std::vector<const Said*>& from) {
  Said tier = *from.front();
  tier.value = scalar_at(tier.value, tier_of(division));
  if (division.stage && divides(layer))
    layer.emit("memory.shard", kShards[static_cast<size_t>(*division.stage)], from);
  else if (tier.value.text.empty())
    for (const Said* said : from)
      layer.ignore(*said, "the planner chooses what several devices divide (memory.shard)");
  layer.say("@tier", std::move(tier));
}

void combine_tier(Layer& layer, const std::vector<const Said*>& from, bool is_new) {
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
  if (words.empty() || (!is_new && !is_set)) return;
  if (!is_new) layer.emit("memory.tier", "null", from);
  for (const Said* said : from)
    layer.ignore(*said,
                 "the planner offloads what the budget asks for to memory.disk (memory.tier fixes it)");
}

int64_t devices_of(const Said* said) {
  return said == nullptr ? 1 : std::max<int64_t>(read_foreign_whole(said->value).value_or(1), 1);
}

// A mesh of devices (accelerate's ParallelismConfig): shards divide the weights, as FSDP2 does (`is_divided` if keys of
// FSDP or DeepSpeed say how). Whole copies of shards, and devices that share a layer or a sequence, change where
// numbers lie and none of them: all devices divide the weights instead.
void combine_mesh(Layer& layer, bool is_divided) {
  for (const std::string_view part : kSplits) {
    const Said* split = layer.part(part);
    if (split == nullptr || !layer.says({part}) || devices_of(split) < 2) continue;
    layer.note(
        std::string(part),
        formatted("the devices of '{}' share a layer or a sequence there and count as one process of the "
                  "batch; here memory.shard says what several devices divide",
                  split->as_written));
  }
  if (!layer.says({"@shards"})) return;
  const Said* shards = layer.part("@shards");
  if (devices_of(shards) > 1 && !is_divided && divides(layer))
    layer.emit("memory.shard", kShards.back(), {shards});
}

}  // namespace

std::vector<const Said*> keys_of_launch(const Layer& layer) {
  std::vector<const Said*> keys = keys_of_deepspeed(layer);
  if (keys.empty()) keys = keys_of_fsdp(layer);
  std::erase(keys, layer.part("@distributed"));  // DDP
  return keys;
}

// DeepSpeed 0.18 runtime/zero/stage_1_and_2.py, stage3.py and runtime/bf16_optimizer.py; accelerate 1.x accelerator.py:
// prepare_model and utils/fsdp_utils.py, which follow DeepSpeed. torchtune's own FSDP does not.
bool keeps_whole_copy(const Layer& layer) {
  return layer.tool() != Tool::torchtune && !keys_of_launch(layer).empty();
}

void combine_shard(Layer& layer) {
  // DeepSpeed's keys come with accelerate's `distributed_type: DEEPSPEED`, and decide.
  const std::vector<const Said*> zero = keys_of_deepspeed(layer);
  const std::vector<const Said*> from = zero.empty() ? keys_of_fsdp(layer) : zero;
  ignore_idle(layer, from);
  combine_mesh(layer, !from.empty());
  if (from.empty()) return;
  const bool is_new =
      std::any_of(kKeys.begin(), kKeys.end(), [&](std::string_view name) { return layer.says({name}); });
  if (is_new) {
    const auto division =
        zero.empty() ? read_fsdp_division(layer, from) : read_deepspeed_division(layer, from);
    if (!division) return;
    take(layer, *division, from);
  }
  combine_tier(layer, from, is_new);
}

}  // namespace plimsoll
