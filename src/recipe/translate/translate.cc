#include "recipe/translate/translate.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/strings.h"
#include "recipe/option.h"
#include "recipe/shell/training.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"
#include "recipe/translate/sections.h"

namespace plimsoll {
namespace {

bool holds_component(const Node& node) {
  return std::any_of(node.items.begin(), node.items.end(), [](const Node& item) {
    return item.key == "_component_" || item.key.ends_with("._component_") || holds_component(item);
  });
}

bool holds_one_of(const Node& root, std::initializer_list<std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](std::string_view key) { return find_node(root, key) != nullptr; });
}

// ${output_dir} in torchtune's recipes is another key's text. `left` bounds the time that a text can cost.
// Notes the keys whose text was used.
void fill_references(Node& node, const Node& root, std::set<std::string, std::less<>>& used, int& left) {
  for (Node& item : node.items) fill_references(item, root, used, left);
  const size_t begin = node.text.find("${");
  const size_t end = node.text.find('}', begin);
  if (node.kind != Node::Kind::scalar || begin == std::string::npos || end == std::string::npos) return;
  if (--left < 0) return;
  const std::string key = node.text.substr(begin + 2, end - begin - 2);
  const Node* target = find_node(root, key);
  if (target == nullptr || target->kind != Node::Kind::scalar) return;
  used.insert(key);
  if (target->text.find("${") != std::string::npos) return;
  node.text.replace(begin, end + 1 - begin, target->text);
}

// Keys whose texts name keys of their own are filled in one after the other.
void fill_all_references(Node& root, std::set<std::string, std::less<>>& used) {
  constexpr int kMostRounds = 8;
  int references = 1024;
  for (int round = 0; round < kMostRounds; ++round) {
    const Node before = root;
    fill_references(root, before, used, references);
  }
}

// PyYAML, which reads the files of these, takes the last of several values of a key.
bool has_last_word(std::optional<Tool> tool) {
  return tool == Tool::axolotl || tool == Tool::llama_factory || tool == Tool::trl;
}

void keep_last_of_each(Node& root, Layer& layer) {
  std::map<std::string, const Node*> last;
  for (const Node& item : root.items) last[item.key] = &item;
  std::vector<Node> kept;
  for (const Node& item : root.items) {
    const Node& counts = *last[item.key];
    if (&counts == &item) {
      kept.push_back(item);
    } else {
      layer.ignore({item, item.key, formatted("{}: {}", item.key, excerpt(as_text(item))), 0},
                   formatted("said again in line {}, and the last one counts", counts.line));
    }
  }
  root.items = std::move(kept);
}

// A script's file that names its model as axolotl does, and whose sections hold what axolotl has without any.
bool is_in_sections(const Node& root) {
  if (has_adapter_section(root)) return true;
  return has_training_section(root) &&
         !holds_one_of(root, {"micro_batch_size", "sequence_len", "gradient_accumulation_steps", "num_epochs",
                              "datasets", "learning_rate"});
}

// The same without sections: transformers' arguments, of which axolotl has none.
bool is_of_flat_script(const Node& root) {
  return holds_one_of(root, {"per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type"}) &&
         !holds_one_of(root, {"micro_batch_size", "sequence_len", "num_epochs", "datasets", "adapter",
                              "pretraining_dataset"});
}

bool is_empty(const Node& node) {
  return node.kind == Node::Kind::null ||
         (node.kind == Node::Kind::scalar ? node.text.empty() : node.items.empty());
}

// The key that names the model: torchtune's builder names its family.
std::string model_name_of(const Node& root) {
  for (const char* key : {"model._component_", "base_model", "model_name_or_path"})
    if (const Node* node = find_node(root, key); node != nullptr && node->kind == Node::Kind::scalar)
      return node->text;
  return "";
}

// axolotl takes no notice of keys that it does not have (pydantic's default). Those of a fork or a later version
// may say what is trained: keys with a word of training in them stay unknown, and so do misspelt ones.
bool names_no_training(const std::string& key) {
  // Anywhere in the name, and at the beginning or the end of one of its words: `url` is no `rl`.
  constexpr std::string_view kOfTraining[] = {
      "adapter", "alpha", "batch",  "beta",  "clip",  "data",   "decay", "distil", "dpo",   "drop",
      "dtype",   "epoch", "expert", "freez", "grad",  "label",  "layer", "learn",  "lora",  "loss",
      "mask",    "moe",   "noise",  "optim", "pack",  "prompt", "quant", "reward", "rope",  "sampl",
      "sched",   "seed",  "seq",    "shuf",  "token", "train",  "vocab", "warm",   "weight"};
  constexpr std::string_view kOfWords[] = {"att", "bit",  "emb",  "fp", "head", "init", "len", "lr",
                                           "mix", "norm", "rate", "rl", "scal", "step", "temp"};
  const std::string name = in_small_letters(key);
  const bool is_of_training =
      std::any_of(std::begin(kOfTraining), std::end(kOfTraining),
                  [&](std::string_view word) { return name.find(word) != std::string::npos; });
  if (is_of_training || !suggest_key(key).empty()) return false;
  return std::ranges::none_of(split(name, '_'), [&](const std::string& part) {
    return std::any_of(std::begin(kOfWords), std::end(kOfWords),
                       [&](std::string_view word) { return part.starts_with(word) || part.ends_with(word); });
  });
}

// These are on here, so a key of them that is false may change the training: answers alone, the ends of texts.
bool names_what_is_on(const std::string& key) {
  constexpr std::string_view kOn[] = {"answer",  "assist", "bos",    "causal",
                                      "complet", "eos",    "respon", "trunc"};
  const std::string name = in_small_letters(key);
  return std::any_of(std::begin(kOn), std::end(kOn),
                     [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

// `use_focal_loss: false` switches nothing off that is on here, unless it speaks of one of these.
bool switches_off_an_extra(const std::string& key) {
  constexpr std::string_view kOn[] = {"adapt", "amp",  "att",    "bias",  "bit",   "cache",  "chat",  "check",
                                      "clip",  "data", "decay",  "drop",  "fp",    "grad",   "lora",  "mask",
                                      "norm",  "pack", "peft",   "pos",   "prec",  "prompt", "quant", "rope",
                                      "sched", "shuf", "system", "templ", "token", "train",  "warm"};
  const std::string name = in_small_letters(key);
  return (name.starts_with("use_") || name.starts_with("enable_")) && !names_what_is_on(name) &&
         std::none_of(std::begin(kOn), std::end(kOn),
                      [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

// Words of axolotl's `adapter`; anything else there is a folder, as in our own recipes.
bool is_method_word(const Node& node) {
  return node.is_word("lora") || node.is_word("qlora") || node.is_word("ia3") || node.is_word("none");
}

// transformers' example scripts (run_glue.py, run_summarization.py, run_clm.py ...), by keys that TRL has
// not.
bool is_of_scripts(const Node& root) {
  if (find_node(root, "model_name_or_path") == nullptr) return false;
  if (holds_one_of(root, {"use_peft", "lora_r", "dataset_text_field", "packing", "dataset_mixer",
                          "dataset_mixture", "datasets", "loss_type", "beta", "completion_only_loss",
                          "assistant_only_loss", "finetuning_type", "stage", "template", "cutoff_len"}))
    return false;
  return holds_one_of(
      root, {"task_name", "max_source_length", "max_target_length", "val_max_target_length", "source_lang",
             "target_lang", "source_prefix", "summary_column", "block_size", "do_train", "do_predict",
             "train_file", "max_train_samples", "pad_to_max_length"});
}

// Rows by a key that scripts alone have, where TRL's command reads dataset_name or datasets.
bool names_rows_as_scripts(const Node& root) {
  if (holds_one_of(root, {"dataset_name", "datasets", "dataset_mixture", "dataset_mixer", "train_file"}))
    return false;
  return std::any_of(root.items.begin(), root.items.end(), [](const Node& item) {
    const Alias* row = find_alias(item.key, Tool::trl);
    if (row == nullptr || (row->to != "data.train" && row->to != "@dataset")) return false;
    const std::vector<std::string> theirs = split(row->keys[static_cast<size_t>(Tool::script)], ' ');
    return std::find(theirs.begin(), theirs.end(), item.key) != theirs.end();
  });
}

// Arguments of MedicalGPT's scripts and of others that are made of them, which no tool has.
bool names_own_script(const Node& root) {
  return holds_one_of(root, {"train_file_dir", "template_name", "prompt_template_name"}) ||
         names_rows_as_scripts(root);
}

// TRL's command and the handbook's scripts, whose defaults are TRL's. Anybody's own may be called sft.py.
bool is_of_trl(std::string_view program) {
  return program.starts_with("trl ") || program == "run_sft.py" || program == "run_dpo.py" ||
         program == "run_orpo.py";
}

// The defaults that a script declares do not show whose command it is.
Node without_declared(const Node& text, const Node& declared) {
  Node said = text;
  std::erase_if(said.items, [&](const Node& item) { return find_node(declared, item.key) != nullptr; });
  return said;
}

void note_declared(const Node& declared, const std::string& program, Layer& layer) {
  std::vector<std::string> words;
  for (const Node& item : declared.items) words.push_back(item.text);
  layer.note("script", formatted("{} declares what its command leaves out, and that is taken: {}", program,
                                 join(words, ", ")));
}

// Takes what a script's own text says in addition to its defaults: under a key of ours what it works out.
void note_missing(const std::string& script, Layer& layer) {
  if (own_script(layer).empty()) return;
  layer.note(
      "script",
      formatted("{} is not on this machine: what it declares itself is not read, and where its command says "
                "nothing transformers' defaults hold (gradients are clipped at 1, no weight decays)",
                script));
}

void take_script_facts(const Node& facts, const std::string& program, Layer& layer) {
  std::vector<std::string> renamed;
  const Said& start = *layer.part(kProgramPart);
  for (const Node& item : facts.items) {
    if (item.key == "renamed")
      renamed.push_back(item.text);
    else if (item.key == "missing")
      note_missing(item.text, layer);
    else if (item.key == "answers")
      layer.note(
          "answers",
          formatted(
              "{} trains the answers within its texts alone (line {}): rows of messages, or of a prompt and a "
              "response, are so here, and rows of text are trained as a whole",
              program, item.text));
    else if (item.key == "adapters")
      layer.refuse_until_later(
          start,
          formatted("{} makes adapters (LoraConfig, line {}), and its command does not say whether: "
                    "--set use_lora=true or --set use_lora=false does",
                    program, item.text),
          "method.type");
    else
      layer.refuse_until_later(
          start, formatted("{} works out {} by itself: --set {}=VALUE says it", program, item.text, item.key),
          item.key);
  }
  if (!renamed.empty())
    layer.note("names", formatted("{} hands arguments on by other names, by which they are read: {}", program,
                                  join(renamed, ", ")));
}

// Arguments of transformers' TrainingArguments, which most training scripts begin from.
bool has_training_arguments(const Node& root) {
  return holds_one_of(root, {"per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type",
                             "save_total_limit", "logging_steps"});
}

// Keys of LLaMA-Factory that others have not; of two that scripts of one's own have as well no script is known, nor a file
// with other words for adapters.
bool holds_llama_factory(const Node& root) {
  if (holds_one_of(root,
                   {"finetuning_type", "stage", "template", "cutoff_len", "dataset_dir", "lora_target"}))
    return true;
  const Node* program = find_node(root, kProgramKey);
  const bool is_of_script = program != nullptr && program->text.ends_with(".py");
  return !is_of_script && holds_one_of(root, {"lora_rank", "quantization_bit"}) &&
         !holds_one_of(root, {"lora_target_modules", "target_modules", "use_lora"});
}

// TrainingArguments as transformers writes them, without the model and the rows: a script of one's own has those.
bool is_of_arguments_alone(const Node& root) {
  return has_training_arguments(root) && !holds_llama_factory(root) &&
         std::ranges::none_of(root.items, [](const Node& item) {
           return item.key != "seed" && (is_group(item.key) || find_option(item.key) != nullptr);
         });
}

// A configuration of accelerate says how processes are started, and nothing of what they train.
bool is_of_accelerate_alone(const Node& root) {
  return root.kind == Node::Kind::map && find_node(root, "compute_environment") != nullptr &&
         !has_training_arguments(root) &&
         !holds_one_of(root, {"model", "model_name_or_path", "base_model", "learning_rate", "data", "method",
                              "dataset"});
}

// A script's file that leaves the model to its command: several of these arguments, and no group of ours.
bool is_of_nameless_script(const Node& root) {
  if (root.kind != Node::Kind::map || holds_one_of(root, {"model", "method", "batch", "schedule"}))
    return false;
  constexpr std::string_view kArguments[] = {"per_device_train_batch_size", "num_train_epochs",
                                             "gradient_accumulation_steps", "learning_rate",
                                             "lr_scheduler_type",           "logging_steps"};
  return has_training_arguments(root) &&
         std::count_if(std::begin(kArguments), std::end(kArguments),
                       [&](std::string_view key) { return find_node(root, key) != nullptr; }) >= 3;
}

}  // namespace

std::optional<Tool> tool_of(const Node& root) {
  if (root.kind != Node::Kind::map) return std::nullopt;
  const bool is_mixture = holds_one_of(root, {"dataset_mixture", "dataset_mixer"});
  if (is_mixture && find_node(root, "model_name_or_path") != nullptr) return Tool::trl;
  if (find_node(root, "base_model") != nullptr)
    return is_in_sections(root) || is_of_flat_script(root) ? std::nullopt : std::optional(Tool::axolotl);
  if (holds_component(root)) return Tool::torchtune;
  if (find_node(root, "model_name_or_path") == nullptr) return std::nullopt;
  if (holds_llama_factory(root) &&
      !holds_one_of(root,
                    {"use_peft", "train_file_dir"}))  // scripts such as MedicalGPT's name adapters alike
    return Tool::llama_factory;
  if (holds_one_of(root, {"dataset_name", "use_peft", "num_train_epochs", "per_device_train_batch_size",
                          "max_steps", "datasets", "torch_dtype", "learning_rate"}) ||
      is_of_scripts(root))
    return Tool::trl;
  return std::nullopt;
}

namespace {

// A key of a script of one's own that is the beginning of an argument, or names rows by its words.
const Alias* row_of_script(const Node& child, const std::string& key, const Layer& layer) {
  const std::string script = own_script(layer);
  const bool may = !script.empty() && layer.tool() && layer.source().has_lines &&
                   find_option(key) == nullptr && !is_group(key) && child.kind == Node::Kind::scalar;
  if (!may) return nullptr;
  const Alias* row = script == kScriptOfFile ? nullptr : find_beginning(key, *layer.tool());
  return row != nullptr ? row : find_alias(rows_named_by(key), layer.tool());
}

}  // namespace

bool Translator::read_theirs(const Node& child, const std::string& key, Layer& layer) {
  if (key == "seed" && child.kind == Node::Kind::null && layer.tool()) {
    layer.ignore({child, key, "seed: null", 0}, "every run has a seed; the default is taken", true);
    return true;
  }
  // "method: lora" in a tool's or a script's file.
  const bool names_method = key == "method" && layer.tool() && child.kind == Node::Kind::scalar;
  const Alias* row = find_alias(names_method ? "peft_type" : key, layer.tool());
  if (row == nullptr) row = row_of_script(child, key, layer);
  if (row == nullptr) return false;
  if (names_method) return layer.read(*row, key, child), true;
  // Only keys of the file: a device that is set in addition to it is one of this program.
  const bool is_of_script =
      layer.tool() == Tool::trl && layer.is_of_scripts() && child.kind == Node::Kind::scalar;
  const bool their_device =
      key == "device" && layer.source().has_lines &&
      (layer.tool() == Tool::torchtune || layer.tool() == Tool::axolotl || is_of_script);
  const bool of_theirs = is_method_word(child) || their_device;
  if (find_option(key) != nullptr && !of_theirs) return false;
  const bool has_inner = is_alias_group(key) || is_group(key);
  // A map whose keys are known one by one, rather than the value of a key; an empty one is off.
  if (has_inner && child.kind == Node::Kind::map) return false;
  if (is_group(key) && child.kind == Node::Kind::null) return false;
  layer.read(*row, key, child);
  return true;
}

Node Translator::own_keys(const Node& map, const std::string& prefix, Layer& layer) {
  Node own = map;
  own.items.clear();
  for (const Node& child : map.items) {
    const std::string key = prefix + child.key;
    if (key == kProgramKey || key == kDefaultsKey || key == kScriptFactsKey) continue;
    if (read_theirs(child, key, layer)) continue;
    const bool is_theirs = is_alias_group(key);
    if (is_theirs && child.kind == Node::Kind::map && child.items.empty() && !is_group(key) &&
        find_option(key) == nullptr) {
      layer.ignore({child, key, formatted("{}: {{}}", key), 0}, "nothing is given", true);
      continue;
    }
    if (is_theirs && child.kind == Node::Kind::map && find_option(key) == nullptr) {
      Node inner = own_keys(child, key + ".", layer);
      if (!inner.items.empty() || child.items.empty()) own.items.push_back(std::move(inner));
    } else if (is_theirs && child.kind == Node::Kind::map && key == "model") {
      Node inner = own_keys(child, key + ".", layer);
      for (Node& item : inner.items) {
        item.key.insert(0, key + ".");
        own.items.push_back(std::move(item));
      }
    } else if (is_empty(child) && (is_theirs || layer.tool()) && !is_group(key) &&
               find_option(key) == nullptr) {
      layer.ignore({child, key, formatted("{}: {}", key, as_text(child)), 0},
                   is_theirs ? "nothing is given" : "not known here, and nothing is given", true);
    } else if (used_.contains(key) && !is_theirs && !is_group(key) && find_option(key) == nullptr) {
      layer.ignore({child, key, formatted("{}: {}", key, excerpt(as_text(child))), 0},
                   formatted("used as ${{{}}} in this file", key), true);
    } else if (!is_theirs && (child.kind != Node::Kind::map || is_of_tracker(key)) && !is_group(key) &&
               find_option(key) == nullptr && is_of_logs(key)) {
      layer.ignore({child, key, formatted("{}: {}", key, excerpt(as_text(child))), 0}, kOfLogs);
    } else if (layer.tool() && layer.source().has_lines && !is_theirs && prefix.empty() &&
               names_split(child)) {
      layer.ignore({child, key, formatted("{}: {}", key, excerpt(as_text(child))), 0}, kOfSplits);
    } else if (layer.tool() && layer.source().has_lines && !is_theirs && child.kind == Node::Kind::scalar &&
               !is_group(key) && find_option(key) == nullptr && is_beside_training(key)) {
      layer.ignore({child, key, formatted("{}: {}", key, excerpt(as_text(child))), 0}, kBeside);
    } else if (layer.tool() && layer.source().has_lines && !is_theirs && !is_group(key) &&
               find_option(key) == nullptr && read_foreign_flag(child) == false && !names_what_is_on(key) &&
               (names_no_training(key) || switches_off_an_extra(key))) {
      layer.ignore({child, key, formatted("{}: {}", key, excerpt(as_text(child))), 0},
                   "not known here, and off", true);
    } else if (layer.tool() == Tool::axolotl && prefix.empty() && layer.source().has_lines &&
               child.kind != Node::Kind::map && !is_theirs && !is_group(key) && find_option(key) == nullptr &&
               names_no_training(key)) {
      layer.ignore({child, key, formatted("{}: {}", key, excerpt(as_text(child))), 0},
                   "axolotl has no such key and takes no notice of it");
    } else {
      own.items.push_back(child);
    }
  }
  return own;
}

Node Translator::translate(const Node& text, const Source& source, const Recipe& before, Problems& problems) {
  if (text.kind != Node::Kind::map) return text;
  const Node* declared = find_node(text, kDefaultsKey);
  std::optional<Tool> tool = named_ && layers_ == 0 ? std::optional(named_->tool)
                             : declared == nullptr  ? tool_of(text)
                                                    : tool_of(without_declared(text, *declared));
  const bool is_first = !report_.tool;
  const Node* launched = find_node(text, kProgramKey);
  const bool may_have_sections = !tool && is_first && source.has_lines && launched == nullptr;
  const auto opened = may_have_sections ? open_sections(text, source, report_) : std::nullopt;
  const Node& root = opened ? *opened : text;
  const bool is_alone =
      may_have_sections && !opened && (is_of_arguments_alone(root) || is_of_nameless_script(root));
  const bool is_of_own_script = opened || is_alone || (tool == Tool::trl && names_own_script(root));
  const std::string program = launched != nullptr ? launched->text
                              : is_of_own_script  ? kScriptOfFile
                                                  : std::string();
  if (!program.empty()) {
    Said said = {text, std::string(kProgramKey), program, layers_ + 1};
    said.value.kind = Node::Kind::scalar;
    said.value.text = program;
    parts_.insert_or_assign(kProgramPart, std::move(said));
  }
  if (!tool && is_first && !program.empty() && (has_training_arguments(root) || is_swift(program)))
    tool = Tool::trl;
  if (tool) {
    report_.tool = tool;
    const bool by_program = !program.empty() && is_first && !is_of_trl(program);
    report_.of_scripts = tool == Tool::trl && !named_ && (by_program || is_of_scripts(root));
    report_.model_name = model_name_of(root);
    const KnownVersions* known = known_versions(*tool);
    if (known != nullptr) report_.version = named_ ? *named_ : ToolVersion{*tool, known->newest, true};
  }
  Layer layer(++layers_, source, report_.tool, before, parts_, problems, report_);
  Node filled = root;
  if (has_last_word(report_.tool)) keep_last_of_each(filled, layer);
  if (report_.tool == Tool::torchtune) fill_all_references(filled, used_);
  Node own = own_keys(filled, "", layer);
  std::erase_if(report_.once, [&](const auto& key) { return find_node(own, key.first) != nullptr; });
  if (declared != nullptr) note_declared(*declared, program, layer);
  if (const Node* facts = find_node(text, kScriptFactsKey)) take_script_facts(*facts, program, layer);
  if (is_first && source.has_lines && is_of_accelerate_alone(root))
    layer.note(
        "accelerate",
        "this is accelerate's configuration of processes, which says nothing of what they train: all else is "
        "Plimsoll's default, or what --set says");
  layer.set_own(&own);
  layer.set_recipe(tool.has_value());
  combine(layer);
  if (layer.is_recipe()) fill_tool_defaults(layer);
  if (is_alone) note_trainers_method(layer);
  layer.drop_what_means_nothing();
  for (Node& node : layer.take()) own.items.push_back(std::move(node));
  return own;
}

}  // namespace plimsoll
