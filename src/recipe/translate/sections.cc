#include "recipe/translate/sections.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/format.h"
#include "base/strings.h"
#include "recipe/option.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

enum class SectionKind : unsigned char {
  none,
  model,
  data,
  training,
  pairs,
  tokenizer,
  lora,
  quantization,
  optimizer,
  scheduler,
  apart
};

struct Section {
  std::string_view name;
  SectionKind kind;
};
// `apart` are about logs, and about what comes before or after the training.
constexpr std::array kSections = {Section{"model", SectionKind::model},
                                  Section{"data", SectionKind::data},
                                  Section{"dataset", SectionKind::data},
                                  Section{"datasets", SectionKind::data},
                                  Section{"training", SectionKind::training},
                                  Section{"train", SectionKind::training},
                                  Section{"trainer", SectionKind::training},
                                  Section{"sft", SectionKind::training},
                                  Section{"hyperparameters", SectionKind::training},
                                  Section{"finetuning", SectionKind::training},
                                  Section{"fine_tuning", SectionKind::training},
                                  Section{"finetune", SectionKind::training},
                                  Section{"dpo", SectionKind::pairs},
                                  Section{"tokenizer", SectionKind::tokenizer},
                                  Section{"lora", SectionKind::lora},
                                  Section{"peft", SectionKind::lora},
                                  Section{"adapter", SectionKind::lora},
                                  Section{"quantization", SectionKind::quantization},
                                  Section{"quant", SectionKind::quantization},
                                  Section{"bnb", SectionKind::quantization},
                                  Section{"bitsandbytes", SectionKind::quantization},
                                  Section{"qlora", SectionKind::quantization},
                                  Section{"optimizer", SectionKind::optimizer},
                                  Section{"optimization", SectionKind::training},
                                  Section{"scheduler", SectionKind::scheduler},
                                  Section{"lr_scheduler", SectionKind::scheduler},
                                  Section{"logging", SectionKind::apart},
                                  Section{"wandb", SectionKind::apart},
                                  Section{"mlflow", SectionKind::apart},
                                  Section{"tracking", SectionKind::apart},
                                  Section{"monitoring", SectionKind::apart},
                                  Section{"experiment", SectionKind::apart},
                                  Section{"project", SectionKind::apart},
                                  Section{"run", SectionKind::apart},
                                  Section{"metadata", SectionKind::apart},
                                  Section{"generation", SectionKind::apart},
                                  Section{"inference", SectionKind::apart},
                                  Section{"serving", SectionKind::apart},
                                  Section{"deployment", SectionKind::apart},
                                  Section{"evaluation", SectionKind::apart},
                                  Section{"eval", SectionKind::apart},
                                  Section{"output", SectionKind::apart},
                                  Section{"outputs", SectionKind::apart},
                                  Section{"paths", SectionKind::apart},
                                  Section{"hub", SectionKind::apart},
                                  Section{"export", SectionKind::apart},
                                  Section{"merge", SectionKind::apart},
                                  Section{"artifacts", SectionKind::apart},
                                  Section{"checkpointing", SectionKind::training},
                                  Section{"hardware", SectionKind::apart},
                                  Section{"system", SectionKind::apart},
                                  Section{"environment", SectionKind::apart}};

struct SectionName {
  SectionKind kind;
  std::string_view theirs;  // inside of a section of the kind
  std::string_view key;     // what it is called outside; "" has no effect
};
constexpr std::array kNames = {
    SectionName{SectionKind::model, "name", "model"},
    SectionName{SectionKind::model, "name_or_path", "model"},
    SectionName{SectionKind::model, "model_name_or_path", "model"},
    SectionName{SectionKind::model, "model_name", "model"},
    SectionName{SectionKind::model, "model_id", "model"},
    SectionName{SectionKind::model, "id", "model"},
    SectionName{SectionKind::model, "path", "model"},
    SectionName{SectionKind::model, "base", "model"},
    SectionName{SectionKind::model, "base_model", "model"},
    SectionName{SectionKind::model, "base_model_name", "model"},
    SectionName{SectionKind::model, "base_model_id", "model"},
    SectionName{SectionKind::model, "pretrained", "model"},
    SectionName{SectionKind::model, "pretrained_model_name_or_path", "model"},
    SectionName{SectionKind::model, "hf_model", "model"},
    SectionName{SectionKind::model, "hf_model_id", "model"},
    SectionName{SectionKind::model, "dtype", "torch_dtype"},
    SectionName{SectionKind::model, "max_length", "max_seq_length"},
    SectionName{SectionKind::model, "max_seq_len", "max_seq_length"},
    SectionName{SectionKind::model, "revision", "model_revision"},
    SectionName{SectionKind::model, "tokenizer", "tokenizer_name"},
    SectionName{SectionKind::model, "special_tokens", "add_special_tokens"},
    SectionName{SectionKind::data, "path", "data_path"},
    SectionName{SectionKind::data, "name", "data_path"},
    SectionName{SectionKind::data, "dataset", "data_path"},
    SectionName{SectionKind::data, "dataset_id", "data_path"},
    SectionName{SectionKind::data, "dataset_name", "data_path"},
    SectionName{SectionKind::data, "dataset_path", "data_path"},
    SectionName{SectionKind::data, "train_path", "data_path"},
    SectionName{SectionKind::data, "train_file", "data_path"},
    SectionName{SectionKind::data, "train_data", "data_path"},
    SectionName{SectionKind::data, "train_data_path", "data_path"},
    SectionName{SectionKind::data, "train_dataset", "data_path"},
    SectionName{SectionKind::data, "training_file", "data_path"},
    SectionName{SectionKind::data, "val_path", "eval_path"},
    SectionName{SectionKind::data, "val_file", "eval_path"},
    SectionName{SectionKind::data, "val_data_path", "eval_path"},
    SectionName{SectionKind::data, "validation_path", "eval_path"},
    SectionName{SectionKind::data, "validation_file", "eval_path"},
    SectionName{SectionKind::data, "eval_path", "eval_path"},
    SectionName{SectionKind::data, "eval_file", "eval_path"},
    SectionName{SectionKind::data, "eval_data_path", "eval_path"},
    SectionName{SectionKind::data, "test_path", ""},
    SectionName{SectionKind::data, "test_file", ""},
    SectionName{SectionKind::data, "val_size", "val_size"},
    SectionName{SectionKind::data, "val_split", "val_size"},
    SectionName{SectionKind::data, "val_ratio", "val_size"},
    SectionName{SectionKind::data, "eval_ratio", "val_size"},
    SectionName{SectionKind::data, "eval_split_ratio", "val_size"},
    SectionName{SectionKind::data, "validation_split", "val_size"},
    SectionName{SectionKind::data, "eval_split", "val_size"},
    SectionName{SectionKind::data, "test_size", "val_size"},
    SectionName{SectionKind::data, "max_len", "max_seq_length"},
    SectionName{SectionKind::data, "max_seq_len", "max_seq_length"},
    SectionName{SectionKind::data, "text_field", "text_column"},
    SectionName{SectionKind::training, "epochs", "num_train_epochs"},
    SectionName{SectionKind::training, "num_epochs", "num_train_epochs"},
    SectionName{SectionKind::training, "lr", "learning_rate"},
    SectionName{SectionKind::training, "max_len", "max_seq_length"},
    SectionName{SectionKind::training, "max_length", "max_seq_length"},
    SectionName{SectionKind::training, "gradient_accumulation", "gradient_accumulation_steps"},
    SectionName{SectionKind::training, "grad_accum", "gradient_accumulation_steps"},
    SectionName{SectionKind::training, "grad_accum_steps", "gradient_accumulation_steps"},
    SectionName{SectionKind::training, "grad_accumulation_steps", "gradient_accumulation_steps"},
    SectionName{SectionKind::training, "scheduler", "lr_scheduler_type"},
    SectionName{SectionKind::training, "lr_scheduler", "lr_scheduler_type"},
    SectionName{SectionKind::training, "lr_schedule", "lr_scheduler_type"},
    SectionName{SectionKind::training, "optimizer", "optim"},
    SectionName{SectionKind::training, "grad_clip", "max_grad_norm"},
    SectionName{SectionKind::training, "clip_grad_norm", "max_grad_norm"},
    SectionName{SectionKind::training, "eval_batch_size", "per_device_eval_batch_size"},
    SectionName{SectionKind::tokenizer, "name", "tokenizer_name"},
    SectionName{SectionKind::tokenizer, "name_or_path", "tokenizer_name"},
    SectionName{SectionKind::tokenizer, "path", "tokenizer_name"},
    SectionName{SectionKind::lora, "rank", "lora.r"},
    SectionName{SectionKind::lora, "r", "lora.r"},
    SectionName{SectionKind::lora, "lora_r", "lora.r"},
    SectionName{SectionKind::lora, "lora_rank", "lora.r"},
    SectionName{SectionKind::lora, "alpha", "lora.alpha"},
    SectionName{SectionKind::lora, "lora_alpha", "lora.alpha"},
    SectionName{SectionKind::lora, "dropout", "lora.dropout"},
    SectionName{SectionKind::lora, "lora_dropout", "lora.dropout"},
    SectionName{SectionKind::lora, "target_modules", "lora.target_modules"},
    SectionName{SectionKind::lora, "lora_target_modules", "lora.target_modules"},
    SectionName{SectionKind::lora, "targets", "lora.target_modules"},
    SectionName{SectionKind::lora, "use_rslora", "use_rslora"},
    SectionName{SectionKind::lora, "use_dora", "use_dora"},
    SectionName{SectionKind::lora, "bias", "lora_bias"},
    SectionName{SectionKind::lora, "type", "peft_type"},
    SectionName{SectionKind::lora, "method", "peft_type"},
    SectionName{SectionKind::lora, "enabled", "use_lora"},
    SectionName{SectionKind::lora, "use_lora", "use_lora"},
    SectionName{SectionKind::lora, "enable", "use_lora"},
    SectionName{SectionKind::lora, "use_gradient_checkpointing", "gradient_checkpointing"},
    SectionName{SectionKind::lora, "random_state", ""},
    SectionName{SectionKind::lora, "merge_weights", ""},
    SectionName{SectionKind::lora, "merge_adapter", ""},
    SectionName{SectionKind::lora, "merge_after_training", ""},
    SectionName{SectionKind::lora, "save_merged", ""},
    SectionName{SectionKind::lora, "save_merged_weights", ""},
    SectionName{SectionKind::quantization, "use_4bit", "load_in_4bit"},
    SectionName{SectionKind::quantization, "use_8bit", "load_in_8bit"},
    SectionName{SectionKind::quantization, "quant_type", "bnb_4bit_quant_type"},
    SectionName{SectionKind::quantization, "compute_dtype", "bnb_4bit_compute_dtype"},
    SectionName{SectionKind::quantization, "double_quant", "bnb_4bit_use_double_quant"},
    SectionName{SectionKind::quantization, "use_double_quant", "bnb_4bit_use_double_quant"},
    SectionName{SectionKind::quantization, "use_nested_quant", "bnb_4bit_use_double_quant"},
    SectionName{SectionKind::optimizer, "type", "optim"},
    SectionName{SectionKind::optimizer, "name", "optim"},
    SectionName{SectionKind::optimizer, "lr", "learning_rate"},
    SectionName{SectionKind::optimizer, "learning_rate", "learning_rate"},
    SectionName{SectionKind::optimizer, "weight_decay", "weight_decay"},
    SectionName{SectionKind::optimizer, "max_grad_norm", "max_grad_norm"},
    SectionName{SectionKind::scheduler, "type", "lr_scheduler_type"},
    SectionName{SectionKind::scheduler, "name", "lr_scheduler_type"},
    SectionName{SectionKind::scheduler, "warmup_ratio", "warmup_ratio"},
    SectionName{SectionKind::scheduler, "warmup_steps", "warmup_steps"},
    SectionName{SectionKind::apart, "dir", ""},
    SectionName{SectionKind::apart, "name", ""}};

// "training_configuration" and "lora_args" are sections as well.
std::string_view section_name(std::string_view key) {
  for (const std::string_view end :
       {"_configuration", "_config", "_arguments", "_args", "_parameters", "_params", "_settings"})
    if (key.ends_with(end)) return key.substr(0, key.size() - end.size());
  return key;
}

SectionKind kind_of(const Node& node) {
  if (node.kind != Node::Kind::map) return SectionKind::none;
  const std::string_view name = section_name(node.key);
  const auto at = std::find_if(kSections.begin(), kSections.end(),
                               [&](const Section& section) { return section.name == name; });
  if (at == kSections.end()) return SectionKind::none;
  return at->kind == SectionKind::apart && is_group(node.key) ? SectionKind::none
                                                              : at->kind;  // a group of ours is ours
}

const SectionName* find_name(SectionKind kind, std::string_view key) {
  const auto at = std::find_if(kNames.begin(), kNames.end(), [&](const SectionName& name) {
    return name.kind == kind && name.theirs == key;
  });
  return at == kNames.end() ? nullptr : &*at;
}

// A key that stands for itself: a key of ours inside of its group, or a dotted one of a tool.
bool is_known_inside(const std::string& section, const std::string& key) {
  const std::string dotted = formatted("{}.{}", section, key);
  return find_option(dotted) != nullptr || find_alias(dotted, std::nullopt) != nullptr;
}

class Opener {
 public:
  Opener(const Source& source, KeyReport& report) : source_(source), report_(report) {}

  Node open(const Node& root) {
    Node opened = root;
    opened.items.clear();
    for (const Node& child : root.items) {
      if (const SectionKind kind = kind_of(child); kind != SectionKind::none && !is_ours(child))
        open_section(child, kind, opened, 0);
      else
        opened.items.push_back(child);
    }
    return opened;
  }

 private:
  // All that it holds is ours: {data: {train: a.jsonl}}.
  static bool is_ours(const Node& section) {
    return std::all_of(section.items.begin(), section.items.end(), [&](const Node& child) {
      return find_option(formatted("{}.{}", section.key, child.key)) != nullptr;
    });
  }

  void ignore(const Node& node, const std::string& section, const std::string& reason) {
    report_.no_effect.push_back({source_.place(node.line),
                                 formatted("{}.{}: {}", section, node.key, excerpt(as_text(node))), reason,
                                 is_off(node)});
  }

  // {quantization: {enabled: false, load_in_4bit: true}}
  bool is_switched_off(const Node& section, SectionKind kind) {
    const Node* enabled = find_node(section, "enabled");
    if (kind != SectionKind::quantization || enabled == nullptr || !is_off(*enabled)) return false;
    report_.no_effect.push_back(
        {source_.place(section.line), section.key + ": {enabled: false}", "off, as here", true});
    return true;
  }

  void open_section(const Node& section, SectionKind kind, Node& opened, int depth) {
    if (is_switched_off(section, kind)) return;
    Node left = section;
    left.items.clear();
    for (const Node& child : section.items) {
      const SectionKind inner = kind_of(child);
      if (inner != SectionKind::none && depth < 3 && kind != SectionKind::apart) {
        open_section(child, inner, opened, depth + 1);
        continue;
      }
      std::string key = child.key;
      const SectionName* name = find_name(kind, child.key);
      if (name != nullptr) key = name->key;
      const bool is_known =
          name != nullptr || find_alias(key, std::nullopt) != nullptr || find_option(key) != nullptr;
      if (kind == SectionKind::data && names_split(child)) {
        ignore(child, section.key, kOfSplits);
      } else if (kind == SectionKind::quantization && child.key == "enabled") {
        ignore(child, section.key, "the section's other keys say what is on");
      } else if (name == nullptr && depth == 0 && is_known_inside(section.key, child.key)) {
        left.items.push_back(child);
      } else if (key.empty() || (kind == SectionKind::apart && (!is_known || !changes_a_run(key)))) {
        ignore(child, section.key, "about logs, or about what comes before or after the training");
      } else if (!is_known && is_off(child)) {
        ignore(child, section.key, "not known here, and nothing is given");
      } else if (!is_known && is_of_logs(child.key)) {
        ignore(child, section.key, kOfLogs);
      } else if (is_known) {
        Node moved = child;
        moved.key = key;
        opened.items.push_back(std::move(moved));
      } else {
        left.items.push_back(child);
      }
    }
    if (!left.items.empty() && is_group(section.key)) {
      opened.items.push_back(std::move(left));
      return;
    }
    for (Node& child : left.items) {  // reported by their names, unless a tool has them so
      child.key = formatted("{}.{}", section.key, child.key);
      opened.items.push_back(std::move(child));
    }
  }

  // A key in a section about other things that changes the training all the same.
  static bool changes_a_run(std::string_view key) {
    static constexpr std::string_view kKeys[] = {"seed",
                                                 "output_dir",
                                                 "load_best_model_at_end",
                                                 "metric_for_best_model",
                                                 "greater_is_better",
                                                 "early_stopping_patience",
                                                 "eval_steps",
                                                 "eval_strategy",
                                                 "evaluation_strategy",
                                                 "save_steps",
                                                 "save_strategy",
                                                 "save_total_limit",
                                                 "logging_steps",
                                                 "report_to"};
    return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
  }

  const Source& source_;
  KeyReport& report_;
};

}  // namespace

bool names_split(const Node& node) {
  static constexpr std::string_view kSplits[] = {
      "train_split", "split",      "dataset_split", "validation_split",
      "eval_split",  "test_split", "val_split",     "dataset_train_split"};
  return std::find(std::begin(kSplits), std::end(kSplits), node.key) != std::end(kSplits) &&
         node.kind == Node::Kind::scalar && !read_foreign_number(node) &&
         node.text.find_first_of("[%+") == std::string::npos;
}

bool is_section(std::string_view key) {
  return std::any_of(kSections.begin(), kSections.end(),
                     [&](const Section& one) { return one.name == section_name(key); });
}

std::string_view rows_named_by(std::string_view key) {
  static constexpr std::string_view kPlaces[] = {"path", "paths",   "file", "files",
                                                 "data", "dataset", "set",  "jsonl"};
  static constexpr std::string_view kOfTraining[] = {"train",  "training", "sft",        "dpo",   "rm",
                                                     "reward", "pref",     "preference", "local", "input",
                                                     "raw",    "hf",       "name"};
  static constexpr std::string_view kOfEvaluation[] = {"eval", "val", "valid", "validation", "dev"};
  const auto is_in = [](const std::string& word, const auto& words) {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
  };
  bool names_data = false, trains = false, evaluates = false;
  for (const std::string& word : split(in_small_letters(key), '_')) {
    const bool is_place = is_in(word, kPlaces);
    if (!is_place && !is_in(word, kOfTraining) && !is_in(word, kOfEvaluation)) return "";
    names_data = names_data || word.starts_with("data") || word == "set" || word == "jsonl";
    trains = trains || (is_in(word, kOfTraining) && word != "local" && word != "name");
    evaluates = evaluates || is_in(word, kOfEvaluation);
  }
  if (!names_data || (!trains && !evaluates)) return "";
  return evaluates ? "eval_path" : "train_path";
}

bool is_of_logs(std::string_view key) {
  static constexpr std::string_view kBegin[] = {
      "wandb_",    "mlflow_",     "comet_",   "neptune_", "swanlab_",      "tensorboard_", "trackio_",
      "clearml_",  "tracking_",   "logger",   "logging_", "log_dir",       "log_file",     "log_path",
      "log_level", "experiment_", "project_", "slurm_",   "metric_logger."};
  static constexpr std::string_view kWhole[] = {
      "name",        "exp_name",  "exp_id",  "experiment", "run_name",      "run_id",  "run_group",
      "description", "desc",      "notes",   "note",       "tags",          "tag",     "comment",
      "author",      "version",   "verbose", "verbosity",  "with_tracking", "tracker", "use_wandb",
      "wandb",       "mlflow",    "swanlab", "comet",      "neptune",       "clearml", "enable_tensorboard",
      "job_name",    "node_rank", "rdzv_id", "rdzv_conf",  "hf_token",      "hf_home", "progress_bar",
      "log_freq",    "print_loss"};
  const std::string small = in_small_letters(key);
  return std::find(std::begin(kWhole), std::end(kWhole), small) != std::end(kWhole) ||
         std::any_of(std::begin(kBegin), std::end(kBegin),
                     [&](std::string_view begin) { return small.starts_with(begin); });
}

bool is_of_tracker(std::string_view key) {
  static constexpr std::string_view kTrackers[] = {"wandb", "mlflow",  "swanlab",
                                                   "comet", "neptune", "clearml"};
  return std::find(std::begin(kTrackers), std::end(kTrackers), key) != std::end(kTrackers);
}

bool is_beside_training(std::string_view key) {
  // These save the model or parts of it in some form, and say nothing of which states are kept.
  static constexpr std::string_view kForms[] = {"save_merged", "save_embedding", "save_lora", "save_full",
                                                "save_model",  "save_adapter",   "save_peft", "save_final"};
  // First words: saving, evaluating, reporting, machines, and what is done with the model afterwards.
  static constexpr std::string_view kBegin[] = {
      "save_", "eval_",   "test_",    "log_", "print_", "plot_",   "push_",   "upload_",
      "gguf_", "export_", "publish_", "gpu_", "slack_", "docker_", "notify_", "ollama_"};
  static constexpr std::string_view kBeginOfPlaces[] = {"merge_", "hf_", "s3_", "gcs_", "aws_", "azure_"};
  static constexpr std::string_view kWhole[] = {
      "merge",       "logfile",  "logdir",    "logs_dir",    "log_with",    "work_dir", "workdir",
      "working_dir", "root_dir", "tmp_dir",   "temp_dir",    "user",        "username", "email",
      "account",     "qos",      "partition", "project_dir", "timeout",     "job_id",   "cpus",
      "expt_name",   "log_path", "gguf",      "time_limit",  "project_root"};
  // Such a key may all the same hold rows out, decide which weights are kept at the end, or change the training.
  static constexpr std::string_view kNot[] = {
      "size", "ratio", "frac",   "share",  "split", "percent", "count", "num",   "rows", "sample", "portion",
      "best", "early", "patien", "prob",   "token", "memory",  "limit", "adapt", "lora", "layer",  "train",
      "head", "loss",  "stop",   "weight", "model", "emb",     "only",  "mode",  "run"};
  static constexpr std::string_view kNotOfPlaces[] = {"data", "file", "text", "turn", "system", "message"};
  const std::string small = in_small_letters(key);
  const auto begins = [&](const auto& words) {
    return std::any_of(std::begin(words), std::end(words),
                       [&](std::string_view word) { return small.starts_with(word); });
  };
  const auto holds = [&](const auto& words) {
    return std::any_of(std::begin(words), std::end(words),
                       [&](std::string_view word) { return small.find(word) != std::string::npos; });
  };
  if (std::find(std::begin(kWhole), std::end(kWhole), small) != std::end(kWhole) || begins(kForms))
    return true;
  if (holds(kNot)) return false;
  return begins(kBegin) || (begins(kBeginOfPlaces) && !holds(kNotOfPlaces));
}

bool has_training_section(const Node& root) {
  return std::any_of(root.items.begin(), root.items.end(),
                     [](const Node& child) { return kind_of(child) == SectionKind::training; });
}

bool has_adapter_section(const Node& root) {
  return find_node(root, "base_model") != nullptr && find_node(root, "adapter") == nullptr &&
         find_node(root, "datasets") == nullptr && find_node(root, "pretraining_dataset") == nullptr &&
         std::any_of(root.items.begin(), root.items.end(),
                     [](const Node& child) { return kind_of(child) == SectionKind::lora; });
}

std::optional<Node> open_sections(const Node& root, const Source& source, KeyReport& report) {
  return has_training_section(root) || has_adapter_section(root)
             ? std::optional(Opener(source, report).open(root))
             : std::nullopt;
}

}  // namespace plimsoll
