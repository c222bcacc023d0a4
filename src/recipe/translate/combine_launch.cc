// Files next to a recipe with the settings of its launch: accelerate's configuration, and a DeepSpeed file's
// keys for batches and clipping. Their keys become parts, as if the recipe had them.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

// Keys of accelerate's file (accelerate 1.x, commands/config/config_args.py) that are read here; the others
// are about how processes are started and find each other, which changes nothing of a run of one.
constexpr std::array<std::string_view, 8> kRead = {
    "num_processes",    "num_machines",     "mixed_precision", "gradient_accumulation_steps",
    "deepspeed_config", "distributed_type", "fsdp_config",     "parallelism_config"};

// TRL 1.16.0, trl/accelerate_configs: files that recipes name without a path.
struct ShippedLaunch {
  std::string_view name;
  std::string_view text;
};
constexpr std::array kShippedLaunches = {
    ShippedLaunch{"single_gpu", "{num_processes: 8, distributed_type: 'NO', mixed_precision: bf16}"},
    ShippedLaunch{"multi_gpu", "{num_processes: 8, mixed_precision: bf16, distributed_type: MULTI_GPU}"},
    ShippedLaunch{"fsdp1",
                  "{num_processes: 8, mixed_precision: bf16, distributed_type: FSDP, fsdp_config: "
                  "{fsdp_reshard_after_forward: FULL_SHARD}}"},
    ShippedLaunch{"fsdp2",
                  "{num_processes: 8, mixed_precision: bf16, distributed_type: FSDP, fsdp_config: "
                  "{fsdp_reshard_after_forward: true}}"},
    ShippedLaunch{"zero1", "{num_processes: 8, mixed_precision: bf16, deepspeed_config: {zero_stage: 1}}"},
    ShippedLaunch{"zero2", "{num_processes: 8, mixed_precision: bf16, deepspeed_config: {zero_stage: 2}}"},
    ShippedLaunch{"zero3", "{num_processes: 8, mixed_precision: bf16, deepspeed_config: {zero_stage: 3}}"}};

Node launch_config(const Layer& layer, const Node& said) {
  if (said.kind == Node::Kind::scalar)
    for (const ShippedLaunch& shipped : kShippedLaunches)
      if (said.text == shipped.name) return read_yaml(shipped.text);
  return layer.read_file(said);
}

void set_line(Node& node, int line) {
  node.line = node.key_line = line;
  for (Node& item : node.items) set_line(item, line);
}

// accelerate launches one process with `distributed_type: NO`, whatever number stands next to it.
bool is_one_process(const Node& config) {
  const Node* type = find_node(config, "distributed_type");
  return type != nullptr && (is_off(*type) || type->is_word("NO"));
}

// ParallelismConfig, with or without the prefix that accelerate's file has. Returns true if it says something.
bool read_mesh(Layer& layer, const Said& said, const Node& config) {
  constexpr std::string_view kPrefix = "parallelism_config_";
  bool says_something = false;
  for (const Node& item : config.items) {
    const std::string key = item.key.starts_with(kPrefix) ? item.key : std::string(kPrefix) + item.key;
    const Alias* row = find_alias(key, Tool::script);
    if (row == nullptr || !row->to.starts_with('@') || is_off(item)) continue;
    Node node = item;
    set_line(node, said.value.line);
    says_something = true;
    if (!layer.says({kProgramPart}) || !layer.says({row->to})) layer.read(*row, key, node);
  }
  return says_something;
}

bool is_shipped(const Node& said) {
  return said.kind == Node::Kind::scalar &&
         std::any_of(kShippedLaunches.begin(), kShippedLaunches.end(),
                     [&](const ShippedLaunch& shipped) { return said.text == shipped.name; });
}

void read_launch(Layer& layer, const Said& said) {
  layer.forget_note("accelerate's file");
  if (!is_shipped(said.value) && is_missing_file(layer, said.value)) {
    layer.ignore(said, "not on this machine; world_size says how many processes it starts");
    return layer.note(
        "accelerate's file",
        formatted("{} is not on this machine: a number of processes, accumulated gradients or a "
                  "precision in it are not read; --set accelerate_config=FILE names it",
                  excerpt(said.value.text)));
  }
  const Node config = launch_config(layer, said.value);
  if (config.kind != Node::Kind::map)
    throw UsageError("expected a map of accelerate's keys, found " + describe(config));
  if (const Node* megatron = find_node(config, "megatron_lm_config");
      megatron != nullptr && !is_off(*megatron))
    throw UsageError("'megatron_lm_config' does not exist here");
  bool says_something = false;
  for (const Node& item : config.items) {
    if (std::find(kRead.begin(), kRead.end(), item.key) == kRead.end() || is_off(item)) continue;
    if (item.key == "parallelism_config") {
      says_something = read_mesh(layer, said, item) || says_something;
      continue;
    }
    Node node = item;
    set_line(node, said.value.line);
    if (item.key == "num_processes" && is_one_process(config)) node.text = "1";
    const Alias& row = *find_alias(item.key, Tool::script);
    says_something = true;
    // A command's own option wins over the file that it names.
    if (layer.says({kProgramPart}) && layer.says({row.to})) continue;
    layer.read(row, item.key, node);
  }
  if (!says_something) layer.ignore(said, "one device: nothing is launched, sharded or exchanged");
}

// DeepSpeed's keys and the parts that they set; "auto" is the recipe's value.
constexpr std::array<std::pair<const char*, const char*>, 5> kOfDeepSpeed = {
    {{"train_micro_batch_size_per_gpu", "@deepspeed_micro"},
     {"gradient_accumulation_steps", "@deepspeed_accumulation"},
     {"train_batch_size", "@deepspeed_total"},
     {"gradient_clipping", "@clip"},
     {"tensor_parallel.autotp_size", "@tensor_parallel"}}};

void read_deepspeed(Layer& layer, const Said& said) {
  const auto config = deepspeed_config(layer, said.value);
  if (!config) return;
  for (const auto& [key, part] : kOfDeepSpeed) {
    const Node* node = find_node(*config, key);
    if (node == nullptr || node->kind != Node::Kind::scalar || node->is_word("auto")) continue;
    Said value = {*node, key, formatted("{}: {}", key, excerpt(node->text)), said.layer};
    set_line(value.value, said.value.line);
    layer.say(part, std::move(value));
  }
  try {
    take_deepspeed_trainer(layer, said, *config);
  } catch (const UsageError& error) {
    layer.refuse(said, error.what());
  }
}

}  // namespace

void combine_launch(Layer& layer) {
  const Said* launch = layer.part("@accelerate");
  if (layer.says({"@accelerate"})) {
    try {
      read_launch(layer, *launch);
    } catch (const UsageError& error) {
      layer.refuse(*launch, error.what());
    }
  }
  if (const Said* mesh = layer.part("@parallelism"); layer.says({"@parallelism"})) {
    try {
      if (is_off(mesh->value) || !read_mesh(layer, *mesh, layer.read_file(mesh->value)))
        layer.ignore(*mesh, "one device: nothing is launched, sharded or exchanged", is_off(mesh->value));
    } catch (const UsageError& error) {
      layer.refuse(*mesh, error.what());
    }
  }
  if (!layer.says({"@deepspeed"}) || is_off(layer.part("@deepspeed")->value)) return;
  try {
    read_deepspeed(layer, *layer.part("@deepspeed"));
  } catch (const UsageError&) {  // NOLINT: reported by combine_shard, which reads it as well
  }
}

}  // namespace plimsoll
