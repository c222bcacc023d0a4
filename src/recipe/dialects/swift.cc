// ms-swift 4.1: src/swift/arguments/ and src/swift/trainers/arguments.py. data.template decides how rows are rendered, as
// for a script of one's own: swift's templates of chat models amount to the model folder's template with answers alone.
#include "recipe/dialects/swift.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/format.h"
#include "base/strings.h"
#include "recipe/shell/training.h"
#include "recipe/translate/foreign_value.h"
#include "recipe/translate/layer.h"

namespace plimsoll {
namespace {

// Older versions' names among them.
const std::map<std::string, std::string, std::less<>>& names() {
  static const std::map<std::string, std::string, std::less<>> kNames = {
      {"model", "model_name_or_path"},
      {"model_id_or_path", "model_name_or_path"},
      {"dataset", "data_path"},
      {"cached_dataset", "data_path"},
      {"val_dataset", "eval_path"},
      {"cached_val_dataset", "eval_path"},
      {"sft_type", "tuner_type"},
      {"train_type", "tuner_type"},
      {"lora_target_modules", "target_modules"},
      {"lora_dropout_p", "lora_dropout"},
      {"max_length", "max_seq_length"},
      {"dtype", "torch_dtype"},
      {"split_dataset_ratio", "val_size"},
      {"dataset_test_ratio", "val_size"},
      {"batch_size", "per_device_train_batch_size"},
      {"lorap_lr_ratio", "loraplus_lr_ratio"},

      {"adapters", "peft_path"},
      // These names mean something else to others.
      {"template", "swift_template"},
      {"template_type", "swift_template"},
      {"model_type", "swift_model_type"},
      {"model_name", "swift_model_name"},
      {"model_author", "swift_model_author"},
      {"strict", "swift_strict"},
      {"loss_scale", "swift_loss_scale"},
      {"max_completion_length", "swift_completion_length"},
      {"system", "default_system"}};
  return kNames;
}

const Node* find(const Node& keys, std::string_view key) {
  const auto at = std::ranges::find(keys.items, key, &Node::key);
  return at == keys.items.end() ? nullptr : &*at;
}

class Defaults {
 public:
  Defaults(Node& keys, int line) : keys_(keys), line_(line) { said_.kind = Node::Kind::map; }

  void take(const std::string& key, const std::string& text) {
    if (find(keys_, key) != nullptr) return;
    Node node = read_yaml(text);
    node.key = key;
    node.line = node.key_line = line_;
    Node told = node;
    told.kind = Node::Kind::scalar;
    told.text = formatted("{} {}", key, text);
    keys_.items.push_back(std::move(node));
    said_.items.push_back(std::move(told));
  }
  void finish() {
    said_.key = kDefaultsKey;
    said_.line = said_.key_line = line_;
    keys_.items.push_back(std::move(said_));
  }

 private:
  Node& keys_;
  Node said_;
  int line_;
};

int64_t whole(const Node* node, int64_t otherwise) {
  return node == nullptr ? otherwise : std::max<int64_t>(1, read_foreign_whole(*node).value_or(otherwise));
}

// trainers/arguments.py:285: 16 rows a step, by all processes.
std::string accumulation(const Node& keys) {
  const int64_t micro = whole(find(keys, "per_device_train_batch_size"), 1);
  const int64_t processes = whole(find(keys, "nproc_per_node"), 1) * whole(find(keys, "nnodes"), 1);
  return std::to_string(std::max<int64_t>(1, (16 + micro * processes - 1) / (micro * processes)));
}

// The kind of training decides this (arguments/rlhf_args.py, arguments/pretrain_args.py): without a type it is DPO, and
// texts begin as the tokenizer begins them.
void read_kind(const Node& keys, std::string_view program, Defaults& defaults) {
  if (program == "swift rlhf") defaults.take("rlhf_type", "dpo");
  if (program != "swift pt") return;
  defaults.take("task", "pretrain");
  if (find(keys, "data.bos") == nullptr) defaults.take("data.bos", "true");
}

// truncation_strategy: delete leaves rows out that are too long.
void read_length(Node& keys) {
  const auto at = std::ranges::find(keys.items, "truncation_strategy", &Node::key);
  if (at == keys.items.end() || !(at->is_word("delete") || at->is_word("right"))) return;
  at->text = at->is_word("delete") ? "drop" : "right";
  at->key = "data.truncation";
}

}  // namespace

void read_swift(Node& keys, const ShellTraining& training) {
  for (Node& item : keys.items)
    if (const auto at = names().find(item.key); at != names().end()) item.key = at->second;
  for (Node& item : keys.items) {
    if (item.key == "target_modules" && item.kind == Node::Kind::scalar && item.is_word("ALL"))
      item.text = "all-linear";
    // The files that it ships, by their names alone.
    if (item.key == "deepspeed" && item.text.starts_with("zero") && item.text.find('.') == std::string::npos)
      item.text += ".json";
  }
  read_length(keys);
  Defaults defaults(keys, training.line);
  read_kind(keys, training.program, defaults);
  defaults.take("tuner_type", "lora");
  const bool is_full = find(keys, "tuner_type")->is_word("full");
  defaults.take("learning_rate", is_full ? "1e-5" : "1e-4");
  if (!is_full) {
    defaults.take("lora_rank", "8");
    defaults.take("lora_alpha", "32");
    defaults.take("lora_dropout", "0.05");
    defaults.take("target_modules", "all-linear");
  }
  defaults.take("per_device_train_batch_size", "1");
  defaults.take("gradient_accumulation_steps", accumulation(keys));
  defaults.take("lr_scheduler_type", "cosine");
  defaults.take("weight_decay", "0.1");
  defaults.take("adam_beta2", "0.95");
  defaults.take("torch_dtype", "bfloat16");
  const Node* type = find(keys, "torch_dtype");
  defaults.take(type->is_word("bfloat16") ? "bf16" : "fp16", "true");
  defaults.take("data.truncation", "drop");
  if (find(keys, "max_seq_length") == nullptr) defaults.take("data.max_length", "null");
  defaults.finish();
}

}  // namespace plimsoll
