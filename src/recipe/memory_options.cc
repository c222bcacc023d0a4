// The keys of `memory`: budgets, and the means to stay in them.
#include <algorithm>

#include "base/strings.h"
#include "device/catalogue.h"
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

Option memory_recompute() {
  static const std::vector<std::string> kPoints = {"none", "act", "cheap", "mlp", "attention", "block"};
  return make(
      "memory.recompute", FIELD(memory.recompute), "auto | " + join(kPoints, " | "),
      "activations computed again instead of kept, in all layers",
      [](const Node& node, Folder) -> std::optional<std::optional<std::string>> {
        if (node.is_word("auto")) return std::optional<std::string>();
        const bool known = std::find(kPoints.begin(), kPoints.end(), node.text) != kPoints.end();
        if (node.kind != Node::Kind::scalar || !known) return std::nullopt;
        return std::optional(node.text);
      },
      [](const std::optional<std::string>& point) { return Json(point.value_or("auto")); });
}

Option memory_allow() {
  static const std::vector<std::string> kMeans = {"adamw8bit", "nf4", "bf16-states"};
  return make(
      "memory.allow", FIELD(memory.allow), "a list of " + join(kMeans, ", "),
      "means that change the result, taken where nothing else fits",
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
      "tensors that wait on disk; with device: card, on the host or on disk",
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

// A bare 0 is none, whatever it is a share of.
std::optional<double> read_share(const Node& node) {
  if (read_number(node, {0.0, 0.0})) return 0.0;
  return read_percent(node);
}

Option memory_gpu() {
  return make(
      "memory.gpu", FIELD(memory.gpu), "a card such as RTX 3060 12GB, or null",
      "a card by its name: its memory, what a process has there beside the arena, and seconds by its data "
      "sheet are planned with; means device: card, and train takes it where it is here. memory.device is "
      "then what the run may have of it",
      [](const Node& node, Folder) -> std::optional<std::optional<std::string>> {
        if (node.kind == Node::Kind::null) return std::optional<std::string>();
        if (node.kind != Node::Kind::scalar || node.text.empty()) return std::nullopt;
        return std::optional(full_name(find_card(node.text, "memory.gpu")));
      },
      [](const std::optional<std::string>& name) { return name ? Json(*name) : Json(nullptr); });
}

}  // namespace

std::vector<Option> memory_options() {
  return {
      memory_limit(
          "memory.device", FIELD(memory.device),
          "memory of the whole process; with device: card, of the card. `memory: 8GiB` says the same"),
      memory_gpu(),
      memory_limit("memory.host", FIELD(memory.host), "memory beside the card; means nothing on a CPU"),
      make(
          "memory.tie", FIELD(memory.tie_percent), "a share from 0% to 100%, or auto",
          "plans this close to the fastest are as good: of them the one with least disk traffic, then least "
          "memory of a card's host, then least memory is taken. auto: 1% where seconds are measured "
          "(plimsoll calibrate), 5% where they are guessed",
          [](const Node& node, Folder) -> std::optional<std::optional<double>> {
            if (node.kind == Node::Kind::scalar && node.text == "auto") return std::optional<double>();
            const std::optional<double> share = read_share(node);
            if (!share) return std::nullopt;
            return std::optional<std::optional<double>>(std::in_place, share);
          },
          [](const std::optional<double>& share) { return share ? print_percent(*share) : Json("auto"); }),
      make(
          "memory.disk", FIELD(memory.disk_bytes), "a size such as 100GiB", "disk for what is offloaded",
          [](const Node& node, Folder) { return read_bytes(node); }, print_bytes),
      make(
          "memory.headroom", FIELD(memory.headroom_percent), "a share from 0% to 100%",
          "left free of auto and of shares; a stated size is taken as it is",
          [](const Node& node, Folder) { return read_share(node); }, print_percent),
      memory_allow(),
      optional_word("memory.plan", FIELD(memory.plan), {"a", "b", "c", "fastest"},
                    "a: the least memory in at most a twentieth more time than the fastest plan; b: the same "
                    "with half of its micro-batch; c: the least memory in at most twice the time; queue add "
                    "--plan means the same"),
      optional_word("memory.tier", FIELD(memory.tier), {"deepspeed", "stage2_offload", "stage3", "minimal"},
                    "what leaves the device for the host or the disk: deepspeed nothing, stage2_offload the "
                    "optimizer's states, stage3 gradients too, minimal the weights of the layers too"),
      memory_recompute(),
      memory_offload(),
      auto_integer("memory.loss_chunk", FIELD(memory.loss_chunk), {1, int64_t{1} << 24},
                   "tokens whose logits exist at a time"),
      choice("memory.keep_frozen", FIELD(memory.keep_frozen),
             Words<KeepFrozen>{
                 {"auto", KeepFrozen::automatic}, {"on", KeepFrozen::on}, {"off", KeepFrozen::off}},
             "what layers below all that trains say of each row is kept on disk (memory.disk) from one epoch "
             "to the next; auto: where the run is sooner over by prediction"),
      choice("memory.graphs", FIELD(memory.graphs),
             Words<UseGraphs>{{"auto", UseGraphs::automatic}, {"on", UseGraphs::on}, {"off", UseGraphs::off}},
             "a card's calls of a program are captured and launched as one; auto: where the host is "
             "predicted to "
             "launch slower than the card computes"),
  };
}

}  // namespace plimsoll
