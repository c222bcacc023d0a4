#include "prepare/memory_budget.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/system_memory.h"
#include "base/units.h"
#include "device/catalogue.h"
#include "prepare/planned_card.h"
#include "prepare/setup.h"
#include "recipe/load/load.h"
#include "recipe/values.h"
#include "runs/checkpoint.h"

namespace plimsoll {
namespace {

using Kind = MemoryLimit::Kind;

bool is_auto(const MemoryLimit& limit) { return limit.kind == Kind::automatic; }

int64_t limit_bytes(const MemoryLimit& limit, int64_t free, double headroom_percent) {
  if (limit.kind == Kind::bytes) return limit.bytes;
  const double share = limit.kind == Kind::percent ? limit.percent / 100.0 : 1.0;
  return static_cast<int64_t>(static_cast<double>(free) * share * (1.0 - headroom_percent / 100.0));
}

std::string limit_source(const char* key, const MemoryLimit& limit, const FreeMemory& free) {
  switch (limit.kind) {
    case Kind::bytes:
      return formatted("{}: {}", key, format_bytes(limit.bytes));
    case Kind::percent:
      return formatted("{}: {} % of {} less headroom", key, static_cast<int>(limit.percent),
                       format_bytes(free.bytes));
    case Kind::automatic:
      break;
  }
  const SwapMemory swap = swap_memory();
  const std::string words = swap.total > 0 ? formatted("; swap, {} of {} in use, is not counted",
                                                       format_bytes(swap.used), format_bytes(swap.total))
                                           : "";
  return formatted("{}: auto, free by {} less headroom{}", key, free.source, words);
}

// Adds up two stated budgets of an earlier version.
std::string together(const Recipe::Memory& memory) {
  if (memory.device.kind == Kind::bytes && memory.host.kind == Kind::bytes)
    return "memory: " + to_yaml(print_bytes(memory.device.bytes + memory.host.bytes));
  return "memory: auto";
}

void refuse_host_budget(const Recipe::Memory& memory) {
  if (is_auto(memory.host)) return;
  throw UsageError(
      formatted("memory.host: on a CPU one budget limits the whole process; use `{}` (--memory), and "
                "leave memory.host out; two budgets are for GPUs",
                together(memory)));
}

std::string device_numbers(int64_t count) { return count == 1 ? "0" : formatted("0 to {}", count - 1); }

// Sizes by rank: one for each rank that there is, of devices with memory of their own.
void require_each_device(const Recipe& recipe) {
  const MemoryLimit& limit = recipe.memory.device;
  if (limit.each.empty()) return;
  if (recipe.device != DeviceChoice::emulated && !recipe.is_of_card())
    throw UsageError(
        "memory.device: on CPUs all processes of a machine share one memory, so one size is their budget: state "
        "that (--memory 36GiB), or a size for each of several GPUs (--device cuda)");
  for (const auto& [rank, bytes] : limit.each)
    if (rank >= recipe.devices)
      throw UsageError(formatted(
          "memory.device: {}: there is no device {}, as devices is {} ({}); state devices: {} (--devices {}), "
          "or leave it out",
          rank, rank, recipe.devices, device_numbers(recipe.devices), rank + 1, rank + 1));
  for (int64_t rank = 0; rank < recipe.devices; ++rank)
    if (!limit.each.contains(rank))
      throw UsageError(
          formatted("memory.device: device {} of {} has no size: state one for each (devices {})", rank,
                    recipe.devices, device_numbers(recipe.devices)));
}

// "12.0 GiB", or of unlike devices "12.0 GiB, the least of 2 devices".
std::string stated_bytes(const MemoryLimit& limit) {
  return format_bytes(limit.bytes) +
         (limit.each.size() > 1 ? formatted(", the least of {} devices", limit.each.size()) : "");
}

void require_card_size(const Recipe::Memory& memory) {
  if (memory.device.kind == Kind::bytes) return;
  throw UsageError(
      "memory.device: with device: card state the card's memory as a size, such as 12GiB, or name the card "
      "(memory.gpu, --gpu \"RTX 3060 12GB\"); a card that is only planned for cannot be asked what is free");
}

// The bytes of a limit on a card that is named: all of its memory, a share of it, or a size.
int64_t card_bytes(const MemoryLimit& limit, const Card& card) {
  const int64_t all = card.memory_mib * kMiB;
  if (limit.kind == Kind::percent)
    return static_cast<int64_t>(limit.percent / 100.0 * static_cast<double>(all));
  if (limit.kind == Kind::automatic) return all;
  int64_t most = limit.bytes;
  for (const auto& [rank, bytes] : limit.each) most = std::max(most, bytes);
  // As it is sold it may be a little more than the driver reports.
  if (most > std::max(all, card.gigabytes * kGiB))
    throw UsageError(
        formatted("memory.device: {}, but the {} has {}; leave it out (--memory auto) for all of it",
                  format_bytes(most), full_name(card), format_bytes(all)));
  return std::min(limit.bytes, all);
}

// Reads how much of the card the run may take, and of that the arena, with the key that states it.
void read_card_budget(const Recipe& recipe, const std::optional<PlannedCard>& card, int64_t least_free,
                      Budget& budget) {
  const Recipe::Memory& memory = recipe.memory;
  int64_t exchange = 0;
  for (const OutsidePart& part : exchange_parts(recipe)) exchange += part.counted();
  if (!card) {
    require_card_size(memory);
    budget.device_bytes = memory.device.bytes - exchange;
    budget.device_source = "memory.device: " + stated_bytes(memory.device);
    return;
  }
  const PlannedCard& planned = *card;
  const int64_t all = card_bytes(memory.device, planned.card);
  const auto outside = [&](bool driver) {
    return outside_bytes(describe_card(planned.card, driver, planned.known())) + exchange;
  };
  // Memory that the driver keeps cannot be had, however much is stated. Below 0 nothing fits, by as much.
  const int64_t stated = all - outside(is_whole_card(memory, planned.card));
  const int64_t most = planned.card.memory_mib * kMiB - outside(true);
  budget.device_bytes = std::min(stated, most);
  const std::string sizes = memory.device.each.empty() ? format_bytes(all) : stated_bytes(memory.device);
  budget.device_source = planned.words() +
                         (is_whole_card(memory, planned.card) ? "" : ", memory.device: " + sizes) +
                         (stated > most ? " with what its driver keeps" : "");
  if (recipe.device == DeviceChoice::cuda)
    if (const CardHere* const here = known_card_here(); here != nullptr) {
      const int64_t free = least_free > 0 ? std::min(least_free, here->free_bytes) : here->free_bytes;
      limit_to_free(memory.device.kind != Kind::bytes, std::max<int64_t>(0, free - exchange), budget);
    }
}

// ", divided among 3 processes", of one budget of the machine's.
std::string shared_words(int64_t devices, int64_t nodes, int64_t sharing) {
  if (devices == 1) return "";
  if (nodes > 1) return formatted(", of each of {} nodes, divided among its {} processes", nodes, sharing);
  return formatted(", divided among {} processes", devices);
}

// A tier says which of states, gradients and weights leave the device (docs/explanation/planner.md). Several devices
// that it has divide weights hold a part of each already, as in DeepSpeed's stage 3.
std::optional<OffloadParts> tier_parts(const std::string& tier, bool divides) {
  if (tier == "deepspeed" || (tier == "stage3" && divides)) return OffloadParts{};
  if (tier == "stage2_offload") return OffloadParts{.states = true};
  if (tier == "stage3") return OffloadParts{.states = true, .gradients = true};
  return OffloadParts{.states = true, .gradients = true, .weights = true};
}

}  // namespace

std::vector<std::string> unused_memory_notes(const Recipe& recipe) {
  std::vector<std::string> notes;
  const MemoryLimit& limit = recipe.memory.device;
  for (const auto& [rank, bytes] : limit.each)
    if (bytes > limit.bytes)
      notes.push_back(formatted("device {}: {} of {} stay unused, since all ranks have one layout", rank,
                                format_bytes(bytes - limit.bytes), format_bytes(bytes)));
  return notes;
}

void limit_to_free(bool is_open, int64_t free_bytes, Budget& budget) {
  budget.device_free_bytes = free_bytes;
  if (!is_open || free_bytes >= budget.device_bytes.value_or(0)) return;
  budget.device_bytes = free_bytes;
  budget.device_source += formatted(", of which {} are free for an arena now", format_bytes(free_bytes));
}

bool is_whole_card(const Recipe::Memory& memory, const Card& card) {
  return memory.device.kind != Kind::bytes || memory.device.bytes >= card.memory_mib * kMiB;
}

Budget read_budget(const Recipe& recipe, const std::optional<PlannedCard>& card, int64_t nodes,
                   int64_t on_node, int64_t least_free, int64_t least_of_card) {
  const Recipe::Memory& memory = recipe.memory;
  const FreeMemory free = free_memory();
  // Memory that this process holds already is free in the sense of the plan, which counts it in the host's
  // needs. Its file pages (the program itself) are free in the kernel's sense already.
  FreeMemory usable{free.bytes + process_memory().held, free.source};
  if (least_free > 0 && least_free < usable.bytes) usable = {least_free, "the least of the nodes"};
  Budget budget;
  require_each_device(recipe);
  const int64_t sharing = devices_of_node(recipe, nodes, on_node);
  budget.free_bytes = usable.bytes / sharing;
  budget.sharing = sharing;
  budget.disk_bytes = memory.disk_bytes / sharing;
  if (recipe.memory.gpu && !recipe.is_of_card())
    throw UsageError(
        "memory.gpu: names a GPU, but device is another one; use --device card to plan for it, --device "
        "cuda to train on a GPU of this machine, or unset the name: --set memory.gpu=null");
  if (recipe.is_of_card()) {
    read_card_budget(recipe, card, least_of_card, budget);
    // `auto` bounds nothing where the machine with the card is another one.
    if (!is_auto(memory.host) || recipe.device == DeviceChoice::cuda)
      budget.host_bytes = limit_bytes(memory.host, usable.bytes, memory.headroom_percent) / sharing;
    budget.host_source =
        limit_source("memory.host", memory.host, usable) + shared_words(recipe.devices, nodes, sharing);
    return budget;
  }
  refuse_host_budget(memory);
  budget.of_free = memory.device.kind != Kind::bytes;
  // Sizes by rank (of emulated cards) are of each already.
  budget.process_bytes = limit_bytes(memory.device, usable.bytes, memory.headroom_percent) /
                         (memory.device.each.empty() ? sharing : 1);
  budget.device_source = limit_source("memory", memory.device, usable);
  budget.device_source += shared_words(recipe.devices, nodes, sharing);
  budget.disk_in_memory = memory.disk_bytes > 0 && recipe.output && keeps_files_in_memory(*recipe.output);
  return budget;
}

std::vector<Space> offload_spaces(const Recipe& recipe) {
  // The emulated card's memory is the host's: what leaves it goes there only for who asks for that.
  const Recipe::Memory& memory = recipe.memory;
  const auto names_host = [](const PartTarget& target) { return target.on_host > 0; };
  const bool asks = ((memory.offload || memory.tier) && memory.disk_bytes == 0) ||
                    (memory.offload_to && std::ranges::any_of(*memory.offload_to, names_host));
  std::vector<Space> targets;
  if (recipe.is_of_card() || (recipe.device == DeviceChoice::emulated && asks))
    targets.push_back(Space::host);
  if (recipe.memory.disk_bytes > 0) targets.push_back(Space::disk);
  return targets;
}

std::optional<OffloadParts> offload_parts(const Recipe& recipe, const std::vector<Space>& targets) {
  const Recipe::Memory& memory = recipe.memory;
  std::optional<OffloadParts> parts;
  if (memory.tier) {
    if (memory.offload)
      throw UsageError("memory.tier and memory.offload both choose what is offloaded; set one of them");
    parts = tier_parts(*memory.tier, tier_divides(recipe));
  } else if (memory.offload) {
    parts.emplace();
    for (const std::string& name : *memory.offload) {
      parts->states |= name == "states";
      parts->gradients |= name == "gradients";
      parts->weights |= name == "weights";
      parts->activations |= name == "activations";
    }
  }
  if (parts && parts->any() && targets.empty())
    throw UsageError(
        std::string(memory.tier ? "memory.tier" : "memory.offload") +
        ": on a CPU what leaves the arena goes to disk, and memory.disk is 0; state a size, such "
        "as memory.disk: 20GiB (--disk 20GiB)");
  return parts;
}

std::optional<RecomputeLevels> stated_recompute(const Recipe::Memory& memory, int64_t layers) {
  if (!memory.recompute || memory.recompute->is_one_point()) return memory.recompute;
  const auto& [first, rest, first_layers, segment] = *memory.recompute;
  const auto refuse_more = [&](std::string_view what, int64_t count) {
    if (count > layers)
      throw UsageError(formatted("memory.recompute: {}: {} layers, and the model has {}; state {} at most",
                                 what, format_count(count), format_count(layers), format_count(layers)));
  };
  refuse_more(to_string(first), first_layers);
  refuse_more("segment", segment);
  return first_layers == layers ? RecomputeLevels(first) : *memory.recompute;
}

std::optional<OffloadTargets> stated_targets(const Recipe::Memory& memory, const std::vector<Space>& targets,
                                             int64_t layers) {
  if (!memory.offload_to) return std::nullopt;
  if (memory.offload || memory.tier)
    throw UsageError(formatted("memory.offload_to and {} both choose what is offloaded; set one of them",
                               memory.tier ? "memory.tier" : "memory.offload"));
  const auto has = [&](Space space) { return std::ranges::find(targets, space) != targets.end(); };
  OffloadTargets stated;
  for (const Part part : kEveryPart) {
    const PartTarget& target = (*memory.offload_to)[static_cast<size_t>(part)];
    const std::string key = formatted("memory.offload_to: {}: ", to_string(part));
    if (target.on_host > 0 && !has(Space::host))
      throw UsageError(key +
                       "on a CPU all memory is the device's, so host may be 0 at most; say disk, with "
                       "memory.disk: 20GiB (--disk 20GiB)");
    if (target.on_disk > 0 && !has(Space::disk))
      throw UsageError(key +
                       "memory.disk is 0, so disk may be 0 at most; state a size, such as memory.disk: "
                       "20GiB (--disk 20GiB)");
    const auto counted = [](int64_t count) { return count < PartTarget::kEveryBlock ? count : 0; };
    if (const int64_t all = counted(target.on_disk) + counted(target.on_host); all > layers)
      throw UsageError(formatted("{}{} layers are to be offloaded, and the model has {}; state {} at most",
                                 key, format_count(all), format_count(layers), format_count(layers)));
    stated[static_cast<size_t>(part)] = target.in_blocks(layers);
  }
  return stated;
}

Recipe with_own_card(Recipe recipe) {
  if (recipe.device == DeviceChoice::cuda && !recipe.memory.gpu) {
    const gpu::CudaFacts& facts = card_here(recipe.cuda_card).facts;
    recipe.memory.gpu = full_name(find_card_of(facts.name, facts.memory_bytes, "device: cuda"));
  }
  return recipe;
}

Recipe recipe_to_train(const Recipe& given, bool resumes, std::vector<std::string>& notes) {
  require_trainable(given);
  if (given.device == DeviceChoice::cuda) {
    card_here(given.cuda_card);  // before anything is read for a card that is not there
    return with_own_card(given);
  }
  if (given.is_of_card())
    throw UsageError(formatted(
        "{} describes a GPU for plan; to train on a GPU of this machine use --device cuda, on "
        "the CPU --device cpu{}",
        given.memory.gpu ? "memory.gpu" : "device: card", given.memory.gpu ? " --set memory.gpu=null" : ""));
  Recipe recipe = given;
  Recipe::Memory& memory = recipe.memory;
  if (!resumes || is_auto(memory.host) || !latest_checkpoint(*recipe.output)) return recipe;
  notes.push_back("note    memory.host is of an earlier version: one budget bounds the whole process now, " +
                  together(memory));
  const bool both = memory.device.kind == Kind::bytes && memory.host.kind == Kind::bytes;
  memory.device =
      both ? MemoryLimit{Kind::bytes, 0.0, memory.device.bytes + memory.host.bytes} : MemoryLimit{};
  memory.host = {};
  return recipe;
}

}  // namespace plimsoll
