// Files of DeepSpeed: how they divide and offload; what would change the experiment is refused.
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
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
                                     ShippedZero{"zero0.json", {0, false, false}},
                                     ShippedZero{"zero1.json", {1, false, false}},
                                     ShippedZero{"zero1_torch_compile.json", {1, false, false}},
                                     ShippedZero{"zero2.json", {2, false, false}},
                                     ShippedZero{"zero2_torch_compile.json", {2, false, false}},
                                     ShippedZero{"zero2_offload.json", {2, true, false}},
                                     ShippedZero{"zero3.json", {3, false, false}},
                                     ShippedZero{"zero3_offload.json", {3, true, true}},
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
  for (const char* key : {"compression_training", "sparse_attention"}) {
    const Node* node = find_node(config, key);
    if (node != nullptr && !is_off(*node)) throw UsageError(formatted("'{}' does not exist here", key));
  }
}

// A value of the file's own; nullptr for "auto", which is the recipe's.
const Node* own_value(const Node& section, const std::string& key) {
  const Node* node = find_node(section, "params." + key);
  return node == nullptr || node->is_word("auto") || node->kind == Node::Kind::null ? nullptr : node;
}

Said said_inside(const Said& file, const Node& node, const std::string& key) {
  Said said = {node, key, formatted("{}: {}", key, excerpt(as_text(node))), file.layer};
  said.value.line = said.value.key_line = file.value.line;
  for (Node& item : said.value.items) item.line = item.key_line = file.value.line;
  return said;
}

void check_parameters(const Node& section, const std::string& name,
                      std::initializer_list<std::string_view> known) {
  const Node* parameters = find_node(section, "params");
  if (parameters == nullptr) return;
  for (const Node& item : parameters->items)
    if (!item.is_word("auto") && std::find(known.begin(), known.end(), item.key) == known.end())
      throw UsageError(formatted("'{}.params.{}' does not exist here", name, excerpt(item.key)));
}

// The optimizer that a file of DeepSpeed brings is the one of the training, whatever `optim` is; transformers insists
// that its numbers are the recipe's (integrations/deepspeed.py: fill_match).
void take_optimizer(Layer& layer, const Said& file, const Node& section) {
  check_parameters(section, "optimizer",
                   {"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "bias_correction"});
  const Node* type = find_node(section, "type");
  const Node* decoupled = own_value(section, "adam_w_mode");
  const Node* corrected = own_value(section, "bias_correction");
  const std::string name = type == nullptr ? "" : in_small_letters(type->text);
  if (name != "adamw" && name != "adam")
    throw UsageError(formatted("'optimizer': '{}' does not exist here; AdamW does",
                               excerpt(type == nullptr ? "" : type->text)));
  if ((decoupled != nullptr && is_off(*decoupled)) || (corrected != nullptr && is_off(*corrected)))
    throw UsageError(
        "'optimizer': Adam with its weight decay in the gradient, or without correction, does not exist "
        "here; AdamW does");
  layer.emit("optimizer.name", "adamw", {&file});
  for (const auto& [theirs, ours] :
       {std::pair{"lr", "optimizer.lr"}, std::pair{"betas", "optimizer.betas"},
        std::pair{"eps", "optimizer.eps"}, std::pair{"weight_decay", "optimizer.weight_decay"}})
    if (const Node* value = own_value(section, theirs); value != nullptr)
      layer.emit(ours, said_inside(file, *value, theirs).value, {&file});
}

// The schedule that a file of DeepSpeed brings is the one of the training, whatever lr_scheduler_type is: parts for
// combine_deepspeed_schedule().
void take_schedule(Layer& layer, const Said& file, const Node& section) {
  check_parameters(section, "scheduler",
                   {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"});
  const Node* type = find_node(section, "type");
  if (type == nullptr || !(type->is_word("WarmupLR") || type->is_word("WarmupDecayLR")))
    throw UsageError(formatted("'scheduler': '{}' does not exist here; WarmupLR and WarmupDecayLR do",
                               excerpt(type == nullptr ? "" : type->text)));
  const Node* lowest = own_value(section, "warmup_min_lr");
  if (lowest != nullptr && read_foreign_number(*lowest) != 0.0)
    throw UsageError("'scheduler.params.warmup_min_lr': a warm-up begins at a rate of 0 here");
  const Node* rise = own_value(section, "warmup_type");
  if (rise != nullptr && !rise->is_word("log") && !rise->is_word("linear"))
    throw UsageError("'scheduler.params.warmup_type': expected log or linear");
  if (const Node* highest = own_value(section, "warmup_max_lr"); highest != nullptr)
    layer.emit("optimizer.lr", said_inside(file, *highest, "warmup_max_lr").value, {&file});
  if (const Node* steps = own_value(section, "warmup_num_steps"); steps != nullptr)
    layer.say("@deepspeed_warmup", said_inside(file, *steps, "warmup_num_steps"));
  Said schedule = said_inside(file, *type, "scheduler");
  if (rise != nullptr && rise->is_word("linear")) schedule.value.text += " linear";
  layer.say("@deepspeed_schedule", std::move(schedule));
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

bool is_missing_file(const Layer& layer, const Node& said) {
  std::error_code ignored;
  return said.kind == Node::Kind::scalar &&
         !std::filesystem::exists(layer.source().folder / layer.locate(said).text, ignored);
}

// integrations/deepspeed.py of transformers: a file must have the recipe's batch, rate, warm-up, clipping and precision,
// or auto. An optimizer or a schedule of its own is all that a missing file may add.
std::optional<Node> deepspeed_config(Layer& layer, const Node& said) {
  const Node& named = named_file(said);
  layer.forget_note("DeepSpeed's file");
  if (shipped_zero(layer, named) != nullptr) return std::nullopt;
  if (!is_missing_file(layer, named)) return layer.read_file(named);
  layer.note(
      "DeepSpeed's file",
      formatted("{} is not on this machine; transformers refuses one whose batch, rate, warm-up or precision "
                "differ from the recipe's, but a scheduler or an optimizer in it decides instead of the "
                "recipe's: say it by schedule and optimizer if it has one",
                excerpt(named.text)));
  return std::nullopt;
}

void take_deepspeed_trainer(Layer& layer, const Said& file, const Node& config) {
  if (const Node* optimizer = find_node(config, "optimizer"); optimizer != nullptr && !is_off(*optimizer))
    take_optimizer(layer, file, *optimizer);
  if (const Node* schedule = find_node(config, "scheduler"); schedule != nullptr && !is_off(*schedule))
    take_schedule(layer, file, *schedule);
}

bool combine_deepspeed_schedule(Layer& layer) {
  const Said* schedule = layer.part("@deepspeed_schedule");
  if (schedule == nullptr) return false;
  if (!layer.says({"@deepspeed_schedule", "@deepspeed_warmup", "@schedule", "@schedule_kwargs",
                   "@warmup_ratio", "@warmup_steps"}))
    return true;
  const bool falls = schedule->value.text.starts_with("WarmupDecayLR");
  const std::string rise = schedule->value.text.ends_with(" linear") ? "deepspeed-linear " : "deepspeed ";
  layer.emit("schedule.name", falls ? "linear" : "constant", {schedule});
  for (const char* name : {"@schedule", "@schedule_kwargs"})
    if (layer.says({name}))
      layer.ignore(*layer.part(name),
                   formatted("DeepSpeed's file has a scheduler of its own ({}), which decides",
                             falls ? "WarmupDecayLR" : "WarmupLR"));
  const Said* own = layer.part("@deepspeed_warmup");
  const Said* steps = layer.part("@warmup_steps");
  const Said* ratio = layer.part("@warmup_ratio");
  const bool has_steps = steps != nullptr && !is_off(steps->value);
  const Said* used = own != nullptr ? own : has_steps ? steps : ratio;
  for (const Said* said : present({steps, ratio}))
    if (said != used && layer.says({said == steps ? "@warmup_steps" : "@warmup_ratio"}))
      layer.ignore(*said, "another key of the warm-up decides");
  const auto value = used == nullptr ? std::optional(0.0) : read_foreign_number(used->value);
  if (!value || *value < 0.0) {
    layer.refuse(*used, "expected a share such as 0.03 or a number of steps");
    return true;
  }
  const bool of_axolotl = layer.tool() == Tool::axolotl;
  const bool is_share = used != nullptr && (used == ratio || (*value > 0.0 && *value < 1.0));
  const std::string length = used == nullptr ? (of_axolotl ? "axolotl" : "0")
                             : is_share      ? (of_axolotl ? "axolotl " : "") + percent(*value)
                                             : std::to_string(static_cast<int64_t>(*value));
  layer.emit("schedule.warmup", rise + length, present({schedule, used}));
  layer.note(
      "DeepSpeed's scheduler",
      formatted("the scheduler of DeepSpeed's file ({}) decides instead of lr_scheduler_type, as there: {}; "
                "--set deepspeed=null takes the recipe's own",
                falls ? "WarmupDecayLR" : "WarmupLR",
                falls ? "after its warm-up the rate falls evenly to 0" : "after its warm-up the rate stays"));
  return true;
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
      const ShippedZero* shipped = shipped_zero(layer, named_file(config->value));
      if (!tree && shipped == nullptr) return Division{};  // the planner chooses
      division = tree ? read_zero(*tree) : shipped->zero;
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
