// The keys of `memory`: budgets, and the means to stay in them.
#include <algorithm>
#include <map>
#include <utility>

#include "base/format.h"
#include "base/strings.h"
#include "device/catalogue.h"
#include "passes/choice_json.h"
#include "recipe/option_types.h"

namespace plimsoll {
namespace {

using namespace option_types;  // NOLINT: the table below is written in them

template <class Field>
Option memory_limit(std::string key, Field field, std::string meaning) {
  return make(
      std::move(key), field, "auto, a share such as 80% or a size such as 8GiB", std::move(meaning),
      [](const Node& node, Folder) { return read_memory_limit(node); },
      [](const MemoryLimit& limit) { return print(limit); });
}

Option memory_device() {
  return make(
      "memory.device", FIELD(memory.device),
      "auto, a share such as 80%, a size such as 8GiB, or a size for each of several GPUs such as {0: 24GiB, "
      "1: 12GiB}",
      "memory budget, a limit on peak memory: of the whole process on a CPU, of GPU memory otherwise. `memory: "
      "8GiB` sets it too. Of several GPUs that are unlike the least counts, since all processes have one layout",
      [](const Node& node, Folder) { return read_device_limit(node); },
      [](const MemoryLimit& limit) { return print(limit); });
}

std::optional<RecomputePoint> read_point(std::string_view text) {
  for (int i = 0; i < kNumRecomputePoints; ++i)
    if (const auto point = static_cast<RecomputePoint>(i); text == to_string(point)) return point;
  return std::nullopt;
}

// "all" or a number of layers.
std::optional<int64_t> read_layers(const Node& node) {
  if (node.is_word("all")) return PartTarget::kEveryBlock;
  return read_integer(node, {0, int64_t{1} << 20});
}

// {mlp: 5, cheap: all}, {mlp: 5} or {block: all, segment: 4}, in any order of the names.
std::optional<RecomputeLevels> read_levels(const Node& node) {
  std::map<RecomputePoint, int64_t> layers;  // that have a number
  RecomputePoint rest = RecomputePoint::none;
  int64_t segment = 1;
  for (const Node& item : node.items) {
    const auto point = read_point(item.key);
    const auto count = item.key == "segment" ? read_integer(item, {1, int64_t{1} << 20}) : read_layers(item);
    if (!count || (!point && item.key != "segment")) return std::nullopt;
    if (!point)
      segment = *count;
    else if (*count < PartTarget::kEveryBlock)
      layers.emplace(*point, *count);
    else if (std::exchange(rest, *point) != RecomputePoint::none)
      return std::nullopt;
  }
  std::erase_if(layers, [](const auto& of_point) { return of_point.second == 0; });
  if (segment > 1 && (!layers.empty() || rest != RecomputePoint::block)) return std::nullopt;
  RecomputeLevels levels(rest);
  levels.segment = segment;
  if (layers.empty()) return levels;
  // The first layers recompute more than the rest.
  const auto& [first, count] = *layers.begin();
  if (layers.size() > 1 || first <= rest) return std::nullopt;
  return RecomputeLevels(first, count, rest);
}

Option memory_recompute() {
  static const std::vector<std::string> kPoints = {"none", "act", "cheap", "mlp", "attention", "block"};
  return make(
      "memory.recompute", FIELD(memory.recompute),
      formatted(
          "auto | {}, or two of them with numbers of layers such as {{mlp: 5, cheap: all}}, or {{block: "
          "all, segment: 4}}",
          join(kPoints, " | ")),
      "activation checkpointing (gradient checkpointing): activations that are recomputed in the backward "
      "pass instead of kept, in all layers; with numbers of layers, the first ones recompute more than the "
      "rest; with a segment, so many layers keep one layer's input",
      [](const Node& node, Folder) -> std::optional<std::optional<RecomputeLevels>> {
        if (node.is_word("auto")) return std::optional<RecomputeLevels>();
        const auto levels = node.kind == Node::Kind::map ? read_levels(node)
                            : node.kind == Node::Kind::scalar
                                ? std::optional<RecomputeLevels>(read_point(node.text))
                                : std::nullopt;
        if (!levels) return std::nullopt;
        return std::optional(levels);
      },
      [](const std::optional<RecomputeLevels>& levels) {
        return levels ? recompute_json(*levels) : Json("auto");
      });
}

Option memory_allow() {
  static const std::vector<std::string> kMeans = {"adamw8bit", "nf4", "bf16-states"};
  return make(
      "memory.allow", FIELD(memory.allow), "a list of " + join(kMeans, ", "),
      "lossy memory savings, used only if nothing else fits",
      [](const Node& node, Folder) -> std::optional<std::vector<std::string>> {
        auto names = read_names(node);
        if (!names) return std::nullopt;
        for (const std::string& name : *names)
          if (std::find(kMeans.begin(), kMeans.end(), name) == kMeans.end()) return std::nullopt;
        return names;
      },
      [](const std::vector<std::string>& value) { return Json(value); });
}

Option memory_offload() {
  static const std::vector<std::string> kParts = {"states", "gradients", "weights", "activations"};
  using Parts = std::optional<std::vector<std::string>>;
  return make(
      "memory.offload", FIELD(memory.offload), "auto, none, or a list of " + join(kParts, ", "),
      "offloading: tensors that are kept on disk, or for a GPU in host memory or on disk, until they are "
      "needed",
      [](const Node& node, Folder) -> std::optional<Parts> {
        if (node.is_word("auto")) return Parts();
        if (node.is_word("none")) return Parts(std::vector<std::string>());
        const auto names = read_names(node);
        if (!names) return std::nullopt;
        for (const std::string& name : *names)
          if (std::find(kParts.begin(), kParts.end(), name) == kParts.end()) return std::nullopt;
        return Parts(*names);
      },
      [](const Parts& parts) {
        if (!parts) return Json("auto");
        return parts->empty() ? Json("none") : Json(*parts);
      });
}

std::optional<PartTarget> read_target(const Node& node) {
  for (const Space space : {Space::device, Space::host, Space::disk})
    if (node.is_word(to_string(space))) return PartTarget(space);
  if (node.kind != Node::Kind::map) return std::nullopt;
  PartTarget target;
  for (const Node& item : node.items) {
    const auto layers = read_layers(item);
    if (!layers || (item.key != "disk" && item.key != "host")) return std::nullopt;
    (item.key == "disk" ? target.on_disk : target.on_host) = *layers;
  }
  return target.on_disk >= PartTarget::kEveryBlock ? PartTarget(Space::disk) : target;
}

std::optional<OffloadTargets> read_targets(const Node& node) {
  if (node.kind != Node::Kind::map) return std::nullopt;
  OffloadTargets targets;
  for (const Node& item : node.items) {
    const auto part = std::ranges::find(kEveryPart, item.key, [](Part p) { return to_string(p); });
    const auto target = read_target(item);
    if (part == kEveryPart.end() || !target) return std::nullopt;
    targets[static_cast<size_t>(*part)] = *target;
  }
  return targets;
}

Option memory_targets() {
  return make(
      "memory.offload_to", FIELD(memory.offload_to),
      "auto, or a map of states, gradients, weights, activations to device, host, disk or numbers of layers "
      "such as {disk: 10, host: 12}",
      "offloading part by part: where each is kept, and of how many layers (the first ones on disk, the next "
      "ones on the host of a GPU, the others on the device; all: all that are left). Parts that are not "
      "named stay on the device",
      [](const Node& node, Folder) -> std::optional<std::optional<OffloadTargets>> {
        if (node.is_word("auto")) return std::optional<OffloadTargets>();
        const auto targets = read_targets(node);
        if (!targets) return std::nullopt;
        return std::optional(targets);
      },
      [](const std::optional<OffloadTargets>& targets) {
        return targets ? offload_targets_json(*targets) : Json("auto");
      });
}

Option memory_prefetch() {
  static constexpr IntegerRange kRange{0, kMostPrefetch};
  return make(
      "memory.prefetch", FIELD(memory.prefetch), "auto or " + describe(kRange),
      "layers (in an update: slices) by which transfers of offloaded tensors start ahead of need; 0 takes "
      "the least memory",
      [](const Node& node, Folder) -> std::optional<std::optional<int64_t>> {
        if (node.is_word("auto")) return std::optional<int64_t>();
        const auto number = read_integer(node, kRange);
        if (!number) return std::nullopt;
        return std::optional(number);
      },
      [](const std::optional<int64_t>& number) { return number ? Json(*number) : Json("auto"); });
}

// A bare 0, without %, is 0 whatever it is a share of.
std::optional<double> read_share(const Node& node) {
  if (read_number(node, {0.0, 0.0})) return 0.0;
  return read_percent(node);
}

Option memory_gpu() {
  return make(
      "memory.gpu", FIELD(memory.gpu), "a card such as RTX 3060 12GB, or null",
      "plan for a GPU by name: its memory, the CUDA context and its data sheet's speed; implies device: "
      "card, and train uses that GPU if it is in this machine. memory.device is then the part of it that "
      "the run may take: a size, or a share of the GPU's memory; auto: all",
      [](const Node& node, Folder) -> std::optional<std::optional<std::string>> {
        if (node.kind == Node::Kind::null) return std::optional<std::string>();
        if (node.kind != Node::Kind::scalar || node.text.empty()) return std::nullopt;
        return std::optional(full_name(find_card(node.text, "memory.gpu")));
      },
      [](const std::optional<std::string>& name) { return name ? Json(*name) : Json(nullptr); });
}

Option memory_exchange() {
  return choice(
      "memory.exchange", FIELD(memory.exchange),
      Words<ExchangeWay>{
          {"auto", ExchangeWay::automatic}, {"staged", ExchangeWay::staged}, {"nccl", ExchangeWay::nccl}},
      "several GPUs: how they exchange gradients and weights; staged: through memory of the host, by MPI; "
      "nccl: from one to the other by NVIDIA's NCCL 2.18 or later, which has to be installed; both with the "
      "same bits; auto: staged");
}

Option memory_shard() {
  return choice(
      "memory.shard", FIELD(memory.shard),
      Words<ShardStage>{{"auto", ShardStage::automatic},
                        {"none", ShardStage::none},
                        {"states", ShardStage::states},
                        {"gradients", ShardStage::gradients},
                        {"weights", ShardStage::weights}},
      "several devices: what they divide among themselves instead of holding it each; states: optimizer "
      "states and master weights (ZeRO stage 1); gradients: these and the gradients (stage 2); weights: "
      "these and the weights of the layers, trained or frozen (stage 3); auto: states, or gradients or "
      "weights where nothing fits without that, or where GPUs that fetch parts from the host are slower; with "
      "adafactor none");
}

// A share, or what the planner takes by how well it knows speeds.
Option memory_tie() {
  return make(
      "memory.tie", FIELD(memory.tie_percent), "a share from 0% to 100%, or auto",
      "plans whose throughput is within this share of the fastest count as equal; among them the one "
      "with least disk traffic, then least host memory of a GPU's machine, then least memory is taken. "
      "auto: 1% where speeds are measured (plimsoll calibrate), 5% where they are guessed",
      [](const Node& node, Folder) -> std::optional<std::optional<double>> {
        if (node.kind == Node::Kind::scalar && node.text == "auto") return std::optional<double>();
        const std::optional<double> share = read_share(node);
        if (!share) return std::nullopt;
        return std::optional<std::optional<double>>(std::in_place, share);
      },
      [](const std::optional<double>& share) { return share ? print_percent(*share) : Json("auto"); });
}

}  // namespace

std::vector<Option> memory_options() {
  return {
      memory_device(),
      memory_gpu(),
      memory_limit("memory.host", FIELD(memory.host),
                   "host memory budget of a run on a GPU; refused on a CPU, where memory.device is the "
                   "whole budget"),
      memory_tie(),
      make(
          "memory.disk", FIELD(memory.disk_bytes), "a size such as 100GiB", "disk space for offloading",
          [](const Node& node, Folder) { return read_bytes(node); }, print_bytes),
      make(
          "memory.headroom", FIELD(memory.headroom_percent), "a share from 0% to 100%",
          "share of free host memory that auto and shares leave unused (not of GPU memory); a stated size "
          "is used in full",
          [](const Node& node, Folder) { return read_share(node); }, print_percent),
      memory_allow(),
      optional_word("memory.plan", FIELD(memory.plan), {"a", "b", "c", "fastest"},
                    "a: least memory at no more than 5 % more time than the fastest plan; b: the same with "
                    "half of its micro-batch; c: least memory at no more than twice the time; as in queue "
                    "add --plan"),
      optional_word("memory.tier", FIELD(memory.tier), {"deepspeed", "stage2_offload", "stage3", "minimal"},
                    "what is offloaded to host or disk: deepspeed: nothing; stage2_offload: optimizer "
                    "states; stage3: gradients too; minimal: layer weights too. On several devices, unless "
                    "memory.shard is stated: deepspeed: gradients are divided; stage2_offload: and states "
                    "offloaded; stage3: weights are divided; minimal: and all is offloaded"),
      memory_recompute(),
      memory_offload(),
      memory_targets(),
      memory_prefetch(),
      auto_integer("memory.loss_chunk", FIELD(memory.loss_chunk), {1, int64_t{1} << 24},
                   "tokens whose logits are held at a time (chunked cross entropy)"),
      choice("memory.keep_frozen", FIELD(memory.keep_frozen),
             Words<KeepFrozen>{
                 {"auto", KeepFrozen::automatic}, {"on", KeepFrozen::on}, {"off", KeepFrozen::off}},
             "cache the activations of frozen layers below all trained ones on disk (memory.disk) across "
             "epochs; auto: if the run is predicted to end sooner"),
      memory_shard(),
      memory_exchange(),
      boolean(
          "memory.node_copy", FIELD(memory.node_copy),
          "several devices: the processes of a machine hold frozen weights once, in memory that they "
          "share, with GPUs those that are offloaded to the host, and each reads its part of them; false: each "
          "has a copy of its own"),
      choice("memory.graphs", FIELD(memory.graphs),
             Words<UseGraphs>{{"auto", UseGraphs::automatic}, {"on", UseGraphs::on}, {"off", UseGraphs::off}},
             "CUDA graphs: capture the kernel launches of a step and launch them as one; auto: if launching "
             "is predicted to be slower than computing"),
  };
}

}  // namespace plimsoll
