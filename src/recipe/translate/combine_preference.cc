// Preference training in other tools' keys: LLaMA-Factory 0.9.5 (hparams/finetuning_args.py,
// train/dpo/trainer.py), axolotl 0.19.0 (core/trainers/dpo, utils/schemas/config.py), TRL 1.16.0
// (trl/trainer/dpo_config.py).
#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 4> kLosses = {"sigmoid", "sigmoid_norm", "ipo", "orpo"};
constexpr std::array<std::string_view, 6> kParts = {"@pref_loss",  "@pref_norm", "@pref_beta",
                                                    "@orpo_alpha", "@pref_ftx",  "@pref_smoothing"};
// Other references and other losses: refused unless off.
constexpr std::array<std::string_view, 5> kMore = {"@pref_more", "@pref_reference_adapters",
                                                   "@pref_reference_bits", "@pref_bco", "@pref_verbose"};

bool prefers(const Layer& layer) {
  const Node* task = layer.given("task");
  return task != nullptr ? task->text == "dpo" : layer.before().task == Task::dpo;
}

// The loss that one of the parts names; empty where none does.
std::string loss_of(const Layer& layer) {
  const Said* loss = layer.part("@pref_loss");
  std::string name = loss == nullptr ? "" : loss->value.text;
  if (loss != nullptr && loss->value.items.size() == 1) name = loss->value.items.front().text;
  if (name.empty())
    if (const Said* rl = layer.part("@rl")) name = rl->value.text;
  // Robust DPO without flipped labels (trl/trainer/dpo_trainer.py: label_smoothing) is DPO.
  const Said* flipped = layer.part("@pref_smoothing");
  if (name == "robust" && layer.tool() == Tool::trl && (flipped == nullptr || is_off(flipped->value)))
    name = "sigmoid";
  const bool normed = is_true(layer.part("@pref_norm"));
  return normed && (name.empty() || name == "sigmoid") ? "sigmoid_norm" : name;
}

void combine_number(Layer& layer, std::string_view part, std::string_view key) {
  if (!layer.says({part})) return;
  const Said* said = layer.part(part);
  if (is_off(said->value) && key != "dpo.beta") return layer.ignore(*said, "off, as here", true);
  layer.emit(key, said->value, {said});
}

void combine_loss(Layer& layer) {
  const std::string loss = loss_of(layer);
  if (layer.says({"@pref_loss", "@pref_norm", "@rl"}) && !loss.empty()) {
    const std::vector<const Said*> from =
        present({layer.part("@pref_loss"), layer.part("@pref_norm"), layer.part("@rl")});
    if (std::find(kLosses.begin(), kLosses.end(), loss) == kLosses.end())
      layer.refuse(*from.front(),
                   formatted("the loss '{}' does not exist here; sigmoid, sigmoid_norm, ipo and orpo do",
                             excerpt(loss)));
    else
      layer.emit("dpo.loss", loss, from);
  }
  if (layer.says({"@orpo_alpha"}) && loss != "orpo")
    layer.ignore(*layer.part("@orpo_alpha"), "read by ORPO only");
  else
    combine_number(layer, "@orpo_alpha", "dpo.beta");
}

// TRL has one key for the losses of all of its trainers; its SFT has two that mean the same.
void combine_supervised_loss(Layer& layer, const Said& loss) {
  if (is_word(&loss, "nll") || is_word(&loss, "chunked_nll"))
    return layer.ignore(loss, "cross-entropy, in chunks where the memory asks for it", true);
  const std::string name = excerpt(loss.value.text);
  const bool is_of_pairs = std::find(kLosses.begin(), kLosses.end(), loss.value.text) != kLosses.end();
  layer.refuse(loss, is_of_pairs ? formatted("'{}' is a loss of preferences: say task: dpo beside it", name)
                                 : formatted("'{}' does not exist here; nll, the cross-entropy, does", name));
}

// axolotl's reward models.
void combine_reward_model(Layer& layer) {
  const Said* model = layer.part("@reward_model");
  if (layer.says({"@reward_model"})) {
    if (is_true(model))
      layer.emit("task", "reward", {model});
    else
      layer.ignore(*model, "off, as here", true);
  }
  if (!layer.says({"@num_labels"})) return;
  const Said* labels = layer.part("@num_labels");
  if (is_off(labels->value) || (is_true(model) && is_word(labels, "1")))
    layer.ignore(*labels, "as here: the task says how many scores there are", true);
  else
    layer.refuse(*labels, "classes have names here: task: classify with classify.labels");
}

// MedicalGPT's scripts, each with one sequence for a prompt and its answer.
struct KnownScript {
  std::string_view begin, task, loss;
};
constexpr std::array<KnownScript, 4> kMedicalGpt = {{{"supervised_finetuning", "sft", ""},
                                                     {"dpo_training", "dpo", ""},
                                                     {"orpo_training", "dpo", "orpo"},
                                                     {"reward_modeling", "reward", ""}}};

const KnownScript* known_script(const Layer& layer) {
  const std::string name = own_script(layer);
  const auto known =
      std::ranges::find_if(kMedicalGpt, [&](const KnownScript& one) { return name.starts_with(one.begin); });
  return known == kMedicalGpt.end() ? nullptr : &*known;
}

// qlora.py cuts a prompt and its answer each by itself.
void combine_two_lengths(Layer& layer) {
  if (!layer.says({"@prompt_length", "@answer_length"})) return;
  const Said* prompt = layer.part("@prompt_length");
  const Said* answer = layer.part("@answer_length");
  const auto number = [](const Said* said, int64_t otherwise) {
    return said == nullptr ? otherwise : read_foreign_whole(said->value).value_or(otherwise);
  };
  layer.note(
      "lengths",
      "source_max_len cuts a prompt and target_max_len its answer; here they are cut together, at the sum of "
      "both (data.max_length)");
  layer.emit("data.max_length", std::to_string(number(prompt, 1024) + number(answer, 256)),
             present({prompt, answer}));
}

// Arguments of transformers' example scripts: run_glue.py, run_summarization.py, run_translation.py.
void combine_scripts(Layer& layer) {
  const KnownScript* known = known_script(layer);
  if (known != nullptr && known->task != "sft" && layer.says({kProgramPart})) {
    layer.emit("task", known->task, {layer.part(kProgramPart)});
    if (!known->loss.empty()) layer.emit("dpo.loss", known->loss, {layer.part(kProgramPart)});
  }
  if (layer.says({"@glue"})) {
    const Said* glue = layer.part("@glue");
    layer.emit("task", "classify", {glue});
    std::string name = in_small_letters(glue->value.text);  // as run_glue.py does; its first versions: SST-2
    std::erase(name, '-');
    layer.emit("classify.glue", name, {glue});
  }
  if (own_script(layer).starts_with("run_classification") && layer.says({kProgramPart}))
    layer.emit("task", "classify", {layer.part(kProgramPart)});
  combine_two_lengths(layer);
  if (!layer.says({"@source_length", "@target_length"})) return;
  const Said* source = layer.part("@source_length");
  const Said* target = layer.part("@target_length");
  const auto from = present({source, target});
  if (known != nullptr) {  // one sequence, as long as both together, of decoders
    const auto number = [](const Said* said, int64_t otherwise) {
      return said == nullptr ? otherwise : read_foreign_whole(said->value).value_or(otherwise);
    };
    layer.note(
        "lengths",
        formatted(
            "{} has a length for a prompt and one for its answer; here they are cut together, at the sum of both "
            "(data.max_length)",
            own_script(layer)));
    return layer.emit("data.max_length", std::to_string(number(source, 256) + number(target, 256)), from);
  }
  // Their defaults where a script has no argument.
  const auto length = [&](const Said* said, const char* key, const char* otherwise) {
    Node node = scalar_at(from.front()->value, said == nullptr ? otherwise : said->value.text);
    node.key = key;
    return node;
  };
  Node both = from.front()->value;
  both.kind = Node::Kind::map;
  both.text.clear();
  both.items = {length(source, "source", "1024"), length(target, "target", "128")};
  layer.emit("task", "seq2seq", from);
  layer.emit("data.max_length", both, from);
}

// The names of the file, in which a trainer may stand.
std::string names_of(const Layer& layer, bool with_folders = true) {
  const std::string& path = layer.source().name;
  std::string names = with_folders ? path : path.substr(path.rfind('/') + 1);
  if (const Said* program = layer.part(kProgramPart)) names += " " + program->value.text;
  for (const char* key : {"output", "save.hub"})
    if (const Node* node = layer.given(key)) names += " " + node->text;
  if (const Said* hub = layer.part("@hub_model")) names += " " + hub->value.text;
  return in_small_letters(names);
}

// A word of its own: "corpora" and "corporate" are no orpo.
bool has_word(const std::string& names, const std::string& word) {
  const auto is_letter = [&](size_t at) {
    return at < names.size() && std::isalpha(static_cast<unsigned char>(names[at])) != 0;
  };
  for (size_t at = names.find(word); at != std::string::npos; at = names.find(word, at + 1))
    if (!(at > 0 && is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  return false;
}

// The other trainer of TRL than DPO's that a name of the file points to.
std::string other_trainer(const std::string& names) {
  if (has_word(names, "orpo")) return "orpo";
  for (const char* trainer : {"kto", "cpo", "simpo", "grpo", "rloo", "bco"})
    if (names.find(trainer) != std::string::npos) return trainer;
  return "";
}

// TRL has a configuration for each of its trainers, and a file of keys does not show which one reads it.
void combine_trainer(Layer& layer) {
  const bool is_said = layer.given("task") != nullptr || layer.before().task != Task::sft;
  if (layer.tool() != Tool::trl || is_said) return;
  const Said* loss = layer.says({"@pref_loss"}) ? layer.part("@pref_loss") : nullptr;
  const std::string name = loss == nullptr ? "" : loss_of(layer);
  const bool is_of_pairs = std::find(kLosses.begin(), kLosses.end(), name) != kLosses.end();
  if (loss != nullptr && !is_of_pairs) return;
  if (loss == nullptr && !layer.says({"@pref_beta", "@max_prompt"})) return;
  const auto from = present({loss, layer.says({"@pref_beta"}) ? layer.part("@pref_beta") : nullptr,
                             layer.says({"@max_prompt"}) ? layer.part("@max_prompt") : nullptr});
  const std::string names = names_of(layer), other = other_trainer(names);
  const bool is_orpo = other == "orpo" && loss == nullptr && !has_word(names, "dpo");
  if (other == "orpo" && !is_orpo)
    return layer.refuse(*from.front(),
                        "is read by several trainers of TRL's, and a name here says orpo: say task: dpo and "
                        "dpo.loss: orpo where that is meant",
                        "task");
  if (!other.empty() && !is_orpo)
    return layer.refuse(
        *from.front(),
        formatted("is read by several trainers of TRL's, and a name here says {}, which does not exist; say "
                  "task: dpo where DPO is meant",
                  other),
        "task");
  // A length of prompts alone shows no loss, and a script for answers may cut prompts as well. Folders above the file may
  // be called anything.
  const std::string own = names_of(layer, false);
  const bool says_sft = has_word(own, "sft") && !has_word(own, "dpo");
  if (loss == nullptr && !layer.says({"@pref_beta"}) && says_sft)
    return layer.refuse(
        *from.front(),
        "is a key of TRL's trainers of pairs, and a name here says sft: say task: sft or task: dpo", "task");
  layer.emit("task", "dpo", from);
  if (is_orpo) {
    layer.emit("dpo.loss", "orpo", from);
    layer.read_once_as("dpo.loss", "sigmoid");
    return layer.note(
        "task", formatted("'{}' is a key of TRL's trainers of pairs, and ORPO is taken, which a name here "
                          "says: --set dpo.loss=sigmoid is DPO",
                          from.front()->as_written));
  }
  layer.note(
      "task",
      formatted("'{}' is a key of TRL's trainers of pairs, and DPO is taken: --set task=sft or reward says "
                "otherwise",
                from.front()->as_written));
}

// trl 0.29 (#3906) counts max_length over prompt and answer, and cuts no prompt before.
void combine_prompt_length(Layer& layer) {
  if (!layer.says({"@max_prompt"})) return;
  const Said* length = layer.part("@max_prompt");
  const bool is_older = layer.version() != Version{} && layer.version() < Version{{0, 29, 0}};
  const bool cuts = is_older && !is_off(length->value);
  if (cuts)
    layer.refuse(*length,
                 "prompts that are cut at their beginning, as TRL did before 0.29, do not exist here");
  else
    layer.ignore(*length,
                 "TRL cuts prompts by themselves no more since 0.29: max_length counts prompt and answer");
}

// trl 0.12 to 0.28, trl/trainer/dpo_trainer.py: answers are cut before max_length counts; orpo_trainer.py: of models with
// an encoder alone.
void combine_answer_length(Layer& layer) {
  if (!layer.says({"@max_answer"})) return;
  const Said* length = layer.part("@max_answer");
  const Node* most = layer.given("data.max_length");
  const Node* loss = layer.given("dpo.loss");
  const double answer = read_foreign_number(length->value).value_or(0);
  const bool is_longest = most != nullptr && answer >= read_foreign_number(*most).value_or(answer + 1);
  if (is_off(length->value) || is_longest)
    layer.ignore(*length, "answers are cut at max_length, which is no longer");
  else if (loss != nullptr && loss->is_word("orpo"))
    layer.ignore(*length, "read of models with an encoder alone");
  else
    layer.refuse(*length,
                 "answers that are cut by themselves do not exist here; max_length counts prompt and answer");
}

// torchtune names its loss by a class (torchtune/modules/loss, torchtune/rlhf/loss); those of a preference have
// arguments of their own, whose defaults are DPO's here. A second checkpointer is that of the reference.
void combine_loss_component(Layer& layer) {
  static constexpr std::array<std::string_view, 3> kEntropy = {"cewithchunkedoutputloss",
                                                               "linearcrossentropyloss", "crossentropyloss"};
  if (layer.says({"@loss_component"})) {
    const Said* loss = layer.part("@loss_component");
    const std::string name = word_of(loss->value, "_component_");
    if (name == "dpoloss") {
      layer.emit("task", "dpo", {loss});
      layer.emit("dpo.loss", "sigmoid", {loss});
    } else if (std::find(kEntropy.begin(), kEntropy.end(), name) != kEntropy.end()) {
      layer.ignore(*loss, "cross-entropy, in chunks where the memory asks for it");
    } else {
      layer.refuse(*loss,
                   formatted("'{}' is not known here; CEWithChunkedOutputLoss, LinearCrossEntropyLoss, "
                             "CrossEntropyLoss and DPOLoss are",
                             excerpt(loss->value.text)));
    }
  }
  if (!layer.says({"@ref_checkpointer"})) return;
  const Said* reference = layer.part("@ref_checkpointer");
  const Node* model = layer.given("model");
  const Node* folder = find_node(reference->value, "checkpoint_dir");
  if (folder != nullptr && model != nullptr && folder->text == model->text)
    layer.ignore(*reference, "the model that the training begins with, as here");
  else
    layer.refuse(*reference,
                 "another reference than the model that the training begins with does not exist here");
}

bool is_task(const Layer& layer, Task task, std::string_view name) {
  const Node* said = layer.given("task");
  return said != nullptr ? said->text == name : layer.before().task == task;
}

// TRL's trainers of pairs set every dropout of a model to 0 once its adapter is there (disable_dropout,
// trl/trainer/dpo_trainer.py, reward_trainer.py); axolotl's are made of them. LLaMA-Factory's DPO does the
// same (train/dpo/trainer.py), its reward models do not; MedicalGPT's come from transformers' Trainer.
bool drops_nothing(const Layer& layer) {
  const bool of_trl = layer.tool() == Tool::trl || layer.tool() == Tool::axolotl;
  const Said* key = layer.part("@disable_dropout");
  if (key != nullptr && !is_true(key)) return false;
  return is_task(layer, Task::dpo, "dpo")
             ? of_trl || layer.tool() == Tool::llama_factory
             : of_trl && is_task(layer, Task::reward, "reward") && known_script(layer) == nullptr;
}

void combine_dropout(Layer& layer) {
  const Said* dropout = layer.part("@dropout");
  const bool says = layer.says({"@dropout"});
  if (layer.says({"@disable_dropout"}))
    layer.ignore(*layer.part("@disable_dropout"), "read of pairs: adapters there have method.dropout");
  if (!drops_nothing(layer)) {
    if (says) layer.emit("method.dropout", dropout->value, {dropout});
    return;
  }
  const double otherwise = layer.tool() == Tool::trl ? 0.05 : 0;  // model_config.py:98
  const double once =
      dropout == nullptr ? otherwise : read_foreign_number(dropout->value).value_or(otherwise);
  if (says)
    layer.ignore(*dropout,
                 "this tool trains pairs without dropout (disable_dropout); method.dropout says another");
  if (layer.method() == MethodType::full || once == 0) return;
  if (!layer.is_recipe() && !says && layer.given("task") == nullptr) return;
  // A layer that gives the task later has not given a dropout of ours.
  if (!layer.is_recipe() && layer.before().method.dropout != once) return;
  layer.emit_default("method.dropout", "0");
  layer.read_once_as("method.dropout", format_number("%g", once));
}

}  // namespace

// A script whose name says QLoRA loads the base in 4 bits, whether a key of its file names bits or not.
void combine_named_bits(Layer& layer) {
  const Node* method = layer.given("method.type");
  if (own_script(layer).empty() || method == nullptr || !method->is_word("lora")) return;
  if (layer.part("@four_bit") != nullptr || layer.part("@eight_bit") != nullptr ||
      !layer.says({kProgramPart}))
    return;
  if (has_word(names_of(layer, false), "qlora"))
    layer.refuse_until_later(*layer.part(kProgramPart),
                             "a name here says qlora, and no key says how many bits the base has: --set "
                             "method.type=qlora or --set method.type=lora does",
                             "method.type");
}

void combine_preference(Layer& layer) {
  combine_loss_component(layer);
  combine_trainer(layer);
  combine_prompt_length(layer);
  combine_answer_length(layer);
  combine_reward_model(layer);
  combine_scripts(layer);
  if (layer.says({"@rl"})) layer.emit("task", "dpo", {layer.part("@rl")});
  combine_dropout(layer);
  std::vector<const Said*> said;
  const auto collect = [&](std::span<const std::string_view> parts) {
    for (const std::string_view part : parts)
      if (layer.says({part})) said.push_back(layer.part(part));
  };
  collect(kParts);
  collect(kMore);
  if (said.empty() && !layer.says({"@rl"})) return;
  if (!prefers(layer)) {
    for (const Said* one : said) {
      if (one->key == "loss_type")
        combine_supervised_loss(layer, *one);
      else if (layer.tool() == Tool::trl && one->key.starts_with("ref") && !is_off(one->value))
        layer.refuse_until_later(
            *one,
            formatted("is a key of trainers that compare with a reference: say task: dpo, or "
                      "--set {}=null where none is compared",
                      one->key),
            "task");
      else
        layer.ignore(*one, "read by preference tasks only; the task decides");
    }
    return;
  }
  combine_loss(layer);
  combine_number(layer, "@pref_beta", "dpo.beta");
  combine_number(layer, "@pref_ftx", "dpo.ftx");
  combine_number(layer, "@pref_smoothing", "dpo.label_smoothing");
  const Node* model = layer.given("model");
  for (const std::string_view part : kMore) {
    const bool is_same_model = part == "@pref_more" && layer.says({part}) && model != nullptr &&
                               layer.part(part)->key.starts_with("ref") &&
                               layer.part(part)->value.text == model->text;
    if (is_same_model) {
      layer.ignore(*layer.part(part), "the model that the training begins with, as here");
      continue;
    }
    if (!layer.says({part})) continue;
    const Said* more = layer.part(part);
    if (is_off(more->value) || is_word(more, "reverse_kl"))
      layer.ignore(*more, "off, as here", true);
    else
      layer.refuse(*more,
                   "does not exist here: the reference is the base under the adapter, and the loss what "
                   "dpo.loss says");
  }
}

}  // namespace plimsoll
