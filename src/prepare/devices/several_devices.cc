#include <algorithm>

#include "base/format.h"
#include "base/units.h"
#include "calibrate/link.h"
#include "prepare/setup.h"
#include "runtime/nccl_exchange.h"

namespace plimsoll {
namespace {

[[noreturn]] void refuse(const Recipe& recipe, const std::string& what, const std::string& instead) {
  throw UsageError(formatted("devices: {}: {} is not supported with several devices yet; {}, or devices: 1",
                             recipe.devices, what, instead));
}

// A tier divides among several devices what DeepSpeed's stage of that name does.
ShardStage stage_of_tier(const std::string& tier) {
  return tier == "deepspeed" || tier == "stage2_offload" ? ShardStage::gradients : ShardStage::weights;
}

bool has_own_memory(const Recipe& recipe) {
  return recipe.is_of_card() || recipe.device == DeviceChoice::emulated;
}

// The key that says what is divided, as a recipe has it.
std::string stated_stage(const Recipe& recipe, ShardStage stage) {
  return tier_divides(recipe)
             ? formatted("memory.tier: {}, which divides {},", *recipe.memory.tier, to_string(stage))
             : formatted("memory.shard: {}", to_string(stage));
}

void refuse_memory(const Recipe::Memory& memory, const Recipe& recipe) {
  const ShardStage stage = shard_stage(recipe);
  // Its averages of rows and columns, and the size of its updates, are of whole matrices.
  if (stage >= ShardStage::states && recipe.optimizer.name == OptimizerKind::adafactor)
    refuse(recipe, stated_stage(recipe, stage) + " with optimizer.name: adafactor",
           "set memory.shard to none");
  if (const std::string reason = needs_whole_weights(recipe); stage == ShardStage::weights && !reason.empty())
    refuse(recipe, formatted("{} with {}", stated_stage(recipe, stage), reason),
           "set memory.shard to gradients");
  if (memory.keep_frozen == KeepFrozen::on) refuse(recipe, "memory.keep_frozen: on", "set it to off");
}

}  // namespace

Link link_of(const Recipe& recipe, const PlannedMachine& machine, const DeviceDescription& device) {
  if (machine.link > 0) return {machine.link, Link::Source::stated};
  if (recipe.devices > 1 && recipe.is_of_card()) {
    const bool direct = exchange_way(recipe) == ExchangeWay::nccl && device.reaches_cards;
    const double share = direct ? kLinkBetweenCards : kLinkThroughHost;
    return {share * device.rates.host_copy, Link::Source::guessed, share};
  }
  if (recipe.devices == 1 || machine.elsewhere) return {};
  const std::optional<double> measured = known_link(recipe.devices);
  return measured ? Link{*measured, Link::Source::measured} : Link{};
}

void take_link(const Recipe& recipe, const PlannedMachine& machine, Target& target) {
  target.link = link_of(recipe, machine, target.device);
  target.exchange = exchange_way(recipe);
  if (target.exchange == ExchangeWay::nccl) target.exchange_bytes = NcclExchange::card_bytes(recipe.devices);
  if (target.own_memory)
    for (OutsidePart& part : exchange_parts(recipe)) target.device.outside.push_back(std::move(part));
  if (recipe.devices > 1)
    for (const char* op : {"reduce_scatter", "all_gather"})
      target.device.rates.ops.push_back({op, DType::f32, 0, {{1.0, target.link.bytes_per_second}}});
}

int64_t devices_of_node(const Recipe& recipe, int64_t nodes, int64_t on_node) {
  if (nodes > recipe.devices)
    throw UsageError(
        formatted("--nodes {}: devices: {} are fewer than one for each; state as many devices as processes "
                  "run on all nodes together",
                  nodes, recipe.devices));
  return on_node > 0 ? std::min(on_node, recipe.devices) : ceil_div(recipe.devices, nodes);
}

int64_t node_ranks(const Recipe& recipe, const PlannedMachine& machine) {
  if (recipe.devices == 1 || !recipe.memory.node_copy) return 1;
  return devices_of_node(recipe, machine.nodes, machine.on_node);
}

std::string needs_no_division(const Recipe& recipe, const PlannedMachine& machine) {
  if (has_own_memory(recipe)) return "";  // what a device holds is there once for each
  if (recipe.method.type == MethodType::full || recipe.devices == 1) return "";
  if (node_ranks(recipe, machine) < recipe.devices) return "";
  return "the frozen weights are in memory once for all processes (memory.node_copy)";
}

void take_node_copy(const Recipe& recipe, const PlannedMachine& machine, PlanRequest& request) {
  Experiment& experiment = request.workload.experiment;
  request.target.layout.node_copy = {node_ranks(recipe, machine),
                                     has_own_memory(recipe) ? Space::host : Space::device};
  const std::string whole = needs_no_division(recipe, machine);
  if (experiment.optimizer.shard != ShardStage::weights || whole.empty()) return;
  experiment.optimizer.shard = ShardStage::gradients;
  request.notes.push_back(
      {formatted("memory.shard: weights divides what gradients does: {}", whole), kShardKey});
}

std::string needs_whole_weights(const Recipe& recipe) {
  if (recipe.method.type == MethodType::full) return "";
  if (recipe.method.dora) return "method.dora: true";
  return recipe.method.init == "lora" ? "" : "method.init: " + recipe.method.init;
}

bool tier_divides(const Recipe& recipe) {
  return recipe.devices > 1 && recipe.memory.tier && recipe.memory.shard == ShardStage::automatic;
}

ShardStage shard_stage(const Recipe& recipe) {
  if (recipe.devices == 1) return ShardStage::none;
  if (recipe.memory.shard != ShardStage::automatic) return recipe.memory.shard;
  if (tier_divides(recipe)) return stage_of_tier(*recipe.memory.tier);
  return recipe.optimizer.name == OptimizerKind::adafactor ? ShardStage::none : ShardStage::states;
}

void refuse_with_several_devices(const Recipe& recipe, const DataSetup* data) {
  if (recipe.devices == 1) return;
  refuse_exchange(recipe);
  refuse_memory(recipe.memory, recipe);
  if (recipe.devices > recipe.batch.effective)
    throw UsageError(
        formatted("devices: {} processes share batch.effective: {} sequences, so that some would have none; "
                  "use at most {} devices",
                  recipe.devices, recipe.batch.effective, recipe.batch.effective));
  if (data != nullptr && data->summary && data->summary->scratch.bytes > 0)
    refuse(recipe, "a scratch file for data.shuffle: full", "use data.shuffle: window");
}

}  // namespace plimsoll
