// torchtune: a data set's builder and its arguments (0.6.1 and main: torchtune/datasets/,
// torchtune/data/_messages.py, torchtune/models/*/_tokenizer.py).
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "chat/builtin_templates.h"
#include "recipe/dialects/data_set.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

// Builders with their default arguments.
struct Builder {
  std::string_view name;
  std::string_view source;  // on the hub
  enum class Kind : unsigned char { text, alpaca, instruct, chat, pairs } kind;
  bool learns_prompts;  // train_on_input
};
using Kind = Builder::Kind;
constexpr std::array kBuilders = {
    Builder{"alpaca_dataset", "tatsu-lab/alpaca", Kind::alpaca, true},              // datasets/_alpaca.py
    Builder{"alpaca_cleaned_dataset", "yahma/alpaca-cleaned", Kind::alpaca, true},  // datasets/_alpaca.py
    Builder{"text_completion_dataset", "", Kind::text, false},  // datasets/_text_completion.py
    Builder{"instruct_dataset", "", Kind::instruct, false},     // datasets/_instruct.py
    Builder{"chat_dataset", "", Kind::chat, false},             // datasets/_chat.py
    Builder{"preference_dataset", "", Kind::pairs, false},      // datasets/_preference.py
    // datasets/_stack_exchange_paired.py, datasets/_hh_rlhf_helpful.py
    Builder{"stack_exchange_paired_dataset", "lvwerra/stack-exchange-paired", Kind::pairs, false},
    Builder{"hh_rlhf_helpful_dataset", "RLHFlow/HH-RLHF-Helpful-standard", Kind::pairs, false}};

const std::vector<std::string> kArguments = {"_component_",
                                             "source",
                                             "column_map",
                                             "max_seq_len",
                                             "train_on_input",
                                             "packed",
                                             "split",
                                             "data_files",
                                             "column",
                                             "name",
                                             "add_eos",
                                             "conversation_column",
                                             "conversation_style",
                                             "split_across_pack",
                                             "new_system_prompt",
                                             "use_clean",
                                             "template"};

// Chooses the template by which messages become tokens: the one of the model's tokenizer. Tokenizers without
// a template put [INST] around questions.
std::string template_of(const Layer& layer, bool is_bounded) {
  const Said* tokenizer = layer.part("@tokenizer");
  const Said* prompt = layer.part("@prompt_template");
  const std::string name = tokenizer == nullptr ? "" : word_of(tokenizer->value, "_component_");
  const bool no_tags = prompt != nullptr && is_off(prompt->value);
  if (prompt != nullptr && !no_tags && !prompt->value.text.ends_with("Llama2ChatTemplate") &&
      !prompt->value.text.ends_with("MistralChatTemplate"))
    refuse(formatted("'tokenizer.prompt_template': '{}' does not exist here", excerpt(prompt->value.text)));
  if (name == "llama3_tokenizer") return "torchtune/llama3";
  if (name.starts_with("qwen")) return is_bounded ? "torchtune/qwen2" : "torchtune/qwen2-uncut";
  if (name == "llama2_tokenizer") return no_tags ? "torchtune/plain" : "torchtune/llama2";
  if (name == "mistral_tokenizer") return no_tags ? "torchtune/plain" : "torchtune/mistral";
  if (name == "gemma_tokenizer") return "torchtune/plain";
  if (name == "phi3_mini_tokenizer") return "torchtune/phi3";
  if (name == "phi4_tokenizer" || name == "phi4_14b_tokenizer") return "torchtune/phi4";
  refuse(formatted(
      "'tokenizer': how '{}' writes messages is not known here; llama2, llama3, mistral, qwen, gemma, phi3_mini "
      "and phi4 tokenizers are",
      excerpt(name.empty() ? "a recipe without a tokenizer" : name)));
}

// data/_messages.py: new_system_prompt takes the place of the messages of the role system, in front of all others.
void begin_with_system(const std::string& text, DataSet& set) {
  const BuiltinTemplate* usual = find_builtin_template(set.chat_template);
  if (usual == nullptr) return;
  set.keys["data.template_source"] = formatted(
      "{{%- set messages = [{{'role': 'system', 'content': {}}}] + (messages | rejectattr('role', 'equalto', "
      "'system') | list) %}}{}",
      nlohmann::json(text).dump(), usual->source);
}

// Two answers to a question, or whole conversations with them.
void read_pair_columns(const Node& component, std::string_view builder, DataSet& set) {
  set.format = "preference";
  set.columns = {{"chosen", "chosen"}, {"rejected", "rejected"}};
  const bool has_question = builder == "stack_exchange_paired_dataset";
  if (has_question)
    set.columns = {{"prompt", "question"}, {"chosen", "response_j"}, {"rejected", "response_k"}};
  const Node* map = find_node(component, "column_map");
  if (map == nullptr || is_off(*map)) return;
  if (has_question) set.columns = {{"prompt", "prompt"}, {"chosen", "chosen"}, {"rejected", "rejected"}};
  refuse_unknown(*map, {"prompt", "chosen", "rejected"}, "dataset.column_map");
  for (const Node& item : map->items) set.columns[item.key] = item.text;
}

void read_columns(const Node& component, Kind kind, DataSet& set) {
  const Node* map = find_node(component, "column_map");
  if (map == nullptr || is_off(*map) || kind == Kind::pairs) return;
  const std::vector<std::string> known = kind == Kind::alpaca
                                             ? std::vector<std::string>{"instruction", "input", "output"}
                                             : std::vector<std::string>{"input", "output"};
  if (kind == Kind::chat) return refuse_unknown(*map, {}, "dataset.column_map");
  refuse_unknown(*map, known, "dataset.column_map");
  for (const Node& item : map->items)
    set.columns[kind == Kind::alpaca ? item.key : item.key == "input" ? "prompt" : "response"] = item.text;
}

void read_rows(const Layer& layer, const Node& component, const Builder& builder, DataSet& set) {
  const Node* length = layer.given("data.max_length");
  const bool is_bounded = length != nullptr && length->kind == Node::Kind::scalar;
  switch (builder.kind) {
    case Kind::text:
      set.format = "text";
      set.columns["text"] = text_of(component, "column", "text");
      set.keys["data.bos"] = "true";
      if (!flag_of(component, "add_eos", true))
        refuse("'dataset.add_eos': texts without an end-of-text token do not exist here");
      return;
    case Kind::alpaca:
      set.format = "alpaca";
      break;
    case Kind::instruct:
      set.format = "prompt-response";
      set.columns = {{"prompt", "input"}, {"response", "output"}};
      break;
    case Kind::chat:
      set.format = "messages";
      set.columns["messages"] = text_of(component, "conversation_column", "conversations");
      break;
    case Kind::pairs:
      read_pair_columns(component, builder.name, set);
      break;
  }
  read_columns(component, builder.kind, set);
  set.chat_template = template_of(layer, is_bounded);
  if (const std::string system = text_of(component, "new_system_prompt"); !system.empty())
    begin_with_system(system, set);
  set.keys["data.train_on_prompt"] =
      flag_of(component, "train_on_input", builder.learns_prompts) ? "true" : "false";
}

// torchtune before 0.3 names the prompt around rows of instructions; Alpaca's is that of alpaca_dataset.
Kind kind_by_template(const Node& component, Kind kind) {
  const std::string named = text_of(component, "template");
  if (named.empty()) return kind;
  if (kind != Kind::instruct || !named.ends_with("AlpacaInstructTemplate"))
    refuse(
        formatted("'dataset.template': '{}' does not exist here; AlpacaInstructTemplate of an "
                  "instruct_dataset does",
                  excerpt(named)));
  return Kind::alpaca;
}

DataSet read_component(const Layer& layer, const Node& component) {
  if (component.kind != Node::Kind::map)
    refuse("expected a map with _component_, found " + describe(component));
  const Node* named = find_node(component, "_component_");
  if (named == nullptr) refuse("'dataset._component_' is missing");
  const std::string name = word_of(*named, "_component_");
  const auto builder =
      std::find_if(kBuilders.begin(), kBuilders.end(), [&](const Builder& b) { return b.name == name; });
  if (builder == kBuilders.end()) {
    std::vector<std::string> names;
    for (const Builder& known : kBuilders) names.emplace_back(known.name);
    refuse(formatted("'dataset._component_': '{}' does not exist here; {} do", excerpt(named->text),
                     join(names, ", ")));
  }
  refuse_unknown(component, kArguments, "dataset");
  DataSet set;
  // torchtune before 0.1: alpaca_dataset(use_clean=True).
  const bool is_clean = flag_of(component, "use_clean", false) && name == "alpaca_dataset";
  const std::string source =
      text_of(component, "source", is_clean ? "yahma/alpaca-cleaned" : std::string(builder->source));
  const std::string split = text_of(component, "split", "train");
  const Node* files = find_node(component, "data_files");
  if (files != nullptr && !is_off(*files))
    list_files(layer, *files, split, set);
  else if (!source.empty() && !is_loader(source))
    find_files(layer, component, source, split, text_of(component, "name"), set);
  else
    set.missing = "'dataset.source' and 'dataset.data_files' say no file";
  // Before 0.3 the length stood here, not at the tokenizer.
  if (const std::string length = text_of(component, "max_seq_len"); !length.empty()) {
    if (builder->kind == Kind::text)
      refuse("'dataset.max_seq_len': say tokenizer.max_seq_len, which cuts a text one token earlier");
    set.keys["data.max_length"] = length;
  }
  Builder rows = *builder;
  rows.kind = kind_by_template(component, rows.kind);
  read_rows(layer, component, rows, set);
  if (flag_of(component, "packed", false)) {
    if (builder->kind == Kind::text && flag_of(component, "split_across_pack", true))
      refuse(
          "'dataset.split_across_pack': texts that go on in the next sequence do not exist here; false keeps "
          "them whole");
    set.keys["data.packing"] = "true";
  }
  return set;
}

}  // namespace

// Several are one after the other (datasets/_concat.py).
std::vector<DataSet> read_torchtune(const Layer& layer, const Node& component) {
  if (component.kind != Node::Kind::list) return {read_component(layer, component)};
  std::vector<DataSet> sets;
  for (const Node& one : component.items) sets.push_back(read_component(layer, one));
  return sets;
}

void combine_torchtune(Layer& layer) {
  if (layer.tool() != Tool::torchtune) return;
  const Said* length = layer.part("@max_seq_len");
  if (layer.says({"@max_seq_len"})) {
    // _text_completion.py keeps one token less.
    const Said* component = layer.part("@component");
    const Node* named = component == nullptr ? nullptr : find_node(component->value, "_component_");
    const bool is_text = named != nullptr && word_of(*named, "_component_") == "text_completion_dataset";
    if (is_off(length->value))
      layer.emit("data.max_length", "null", {length});
    else if (const auto tokens = read_foreign_whole(length->value))
      layer.emit("data.max_length", std::to_string(*tokens - (is_text ? 1 : 0)), {length});
    else
      layer.refuse(*length, "expected a whole number or null");
  }
  // models/qwen2/_tokenizer.py:130: texts of Qwen end with its end of a turn, whatever the folder has.
  const Said* tokenizer = layer.part("@tokenizer");
  if (layer.says({"@tokenizer"}) && layer.says({"@component"}) &&
      word_of(tokenizer->value, "_component_").starts_with("qwen")) {
    Node tokens = scalar_at(tokenizer->value, "");
    tokens.kind = Node::Kind::map;
    tokens.items.push_back(scalar_at(tokenizer->value, "<|im_end|>"));
    tokens.items.back().key = "eos_token";
    layer.emit("data.special_tokens", tokens, {tokenizer});
  }
  const Said* steps = layer.part("@max_steps_per_epoch");
  if (layer.says({"@max_steps_per_epoch"}) && !is_off(steps->value)) {
    const Node* epochs = layer.given("schedule.epochs");
    if (epochs != nullptr && epochs->text != "1")
      return layer.refuse(
          *steps, "a limit to each of several epochs does not exist here; schedule.max_steps limits the run");
    layer.emit("schedule.max_steps", steps->value, {steps});
  }
}

}  // namespace plimsoll
