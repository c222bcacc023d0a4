// LLaMA-Factory: names in dataset_info.json (0.9.5: src/llamafactory/data/parser.py, converter.py).
#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/dialects/data_set.h"
#include "recipe/hub.h"
#include "recipe/option.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSets = 1000;  // bounds the time that a recipe can cost

bool is_pretraining(const Layer& layer) {
  const Node* task = layer.given("task");
  return task != nullptr && task->text == "pretrain";
}

// parser.py: the columns of Alpaca rows, and their names unless an entry has others.
struct AlpacaColumn {
  std::string_view theirs, ours, usual;
};
constexpr std::array kAlpacaColumns = {
    AlpacaColumn{"prompt", "instruction", "instruction"}, AlpacaColumn{"query", "input", "input"},
    AlpacaColumn{"response", "output", "output"}, AlpacaColumn{"system", "system", ""},
    AlpacaColumn{"history", "history", ""}};

void read_alpaca(const Node& entry, bool is_text, DataSet& set, const std::string& where) {
  const Node* columns = find_node(entry, "columns");
  if (columns != nullptr)
    refuse_unknown(*columns, {"prompt", "query", "response", "system", "history"}, where + ".columns");
  const Node none;
  if (is_text) {
    set.format = "text";
    set.columns["text"] = text_of(columns != nullptr ? *columns : none, "prompt", "instruction");
    return;
  }
  set.format = "alpaca";
  if (columns == nullptr) return;
  for (const AlpacaColumn& column : kAlpacaColumns) {
    const std::string name = text_of(*columns, column.theirs);
    if (!name.empty()) set.columns[std::string(column.ours)] = name;
  }
  set.columns.try_emplace("instruction", "instruction");  // named, so that no input comes along
}

// Tags of ShareGPT rows other than the usual ones would have to be translated.
void read_tags(const Node& entry, DataSet& set, const std::string& where) {
  const Node* tags = find_node(entry, "tags");
  const Node none;
  const Node& given = tags != nullptr ? *tags : none;
  refuse_unknown(given,
                 {"role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag", "function_tag",
                  "system_tag"},
                 where + ".tags");
  const std::array<std::array<std::string_view, 3>, 5> known = {
      {{"user_tag", "human", "user"},
       {"assistant_tag", "gpt", "assistant"},
       {"observation_tag", "observation", "tool"},
       {"function_tag", "function_call", "function_call"},
       {"system_tag", "system", "system"}}};
  for (const auto& [tag, usual, other] : known) {
    const std::string value = text_of(given, tag, std::string(usual));
    if (value != usual && value != other)
      refuse(formatted("'{}.tags.{}': '{}' is no role here; {} and {} are", where, tag, excerpt(value), usual,
                       other));
  }
  name_messages(text_of(given, "role_tag", "from"), text_of(given, "content_tag", "value"), set);
}

// Two answers, a message each with a conversation, or texts with an instruction and its input; before both a system
// message and, with texts, earlier turns.
void read_ranking(const Node& entry, bool is_alpaca, DataSet& set, const std::string& where,
                  const std::string& name) {
  const Node* columns = find_node(entry, "columns");
  if (is_alpaca && columns == nullptr)
    refuse(where + ": rows of preferences (ranking) name their columns prompt, query, chosen and rejected");
  const Node none;
  const Node& given = columns != nullptr ? *columns : none;
  const char* before = is_alpaca ? "prompt" : "messages";
  std::vector<std::string> known = {before, "chosen", "rejected", "system", "tools"};
  if (is_alpaca)
    known.insert(known.end(), {"query", "history", "response"});
  else
    known.insert(known.end(), {"prompt", "query", "response"});
  refuse_unknown(given, known, name + ".columns");
  set.format = "preference";
  if (const std::string query = text_of(given, "query"); is_alpaca && !query.empty())
    set.columns["input"] = query;
  for (const char* column : {"system", "history", "tools"})
    if (const std::string theirs = text_of(given, column); !theirs.empty()) set.columns[column] = theirs;
  set.columns["prompt"] = text_of(given, before, is_alpaca ? "instruction" : "conversations");
  set.columns["chosen"] = text_of(given, "chosen", "chosen");
  set.columns["rejected"] = text_of(given, "rejected", "rejected");
  if (!is_alpaca) read_tags(entry, set, name);
}

// Returns the reason why rows of an entry are not on this machine: another hub has them, or a script makes them.
std::string named_elsewhere(const Node& entry) {
  for (const char* key : {"ms_hub_url", "om_hub_url", "script_url"})
    if (const std::string name = text_of(entry, key); !name.empty())
      return formatted("its rows are named by {} ({}), which is not read here", key, excerpt(name));
  return "";
}

DataSet read_entry(const Layer& layer, const Node& entry, const fs::path& folder, const std::string& where,
                   const std::string& name) {
  refuse_unknown(entry,
                 {"file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "file_sha1",
                  "formatting", "columns", "ranking", "subset", "split", "tags", "num_samples"},
                 name);
  DataSet set;
  const std::string file = text_of(entry, "file_name");
  const std::string hub = text_of(entry, "hf_hub_url");
  const std::string elsewhere = named_elsewhere(entry);
  if (file.empty() && hub.empty() && elsewhere.empty())
    refuse(where + ": has neither file_name nor hf_hub_url");
  const Node* samples = find_node(entry, "num_samples");
  if (samples != nullptr && !is_off(*samples))
    refuse(formatted(
        "'{}.num_samples': drawing rows at random does not exist here; max_samples takes the first ones",
        name));
  // data/parser.py: the hub comes first, then a script, then a file.
  if (!hub.empty())
    find_files(layer, entry, hub, text_of(entry, "split", "train"), text_of(entry, "subset"), set);
  else if (!elsewhere.empty())
    set.missing = formatted("{}: {}", where, elsewhere);
  else
    set.files = {(folder / file).string()};
  const std::string formatting = text_of(entry, "formatting", "alpaca");
  if (flag_of(entry, "ranking", false)) {
    read_ranking(entry, formatting == "alpaca", set, where, name);
  } else if (formatting == "alpaca") {
    read_alpaca(entry, is_pretraining(layer), set, name);
  } else if (formatting == "sharegpt" || formatting == "openai") {
    set.format = "messages";
    const Node* columns = find_node(entry, "columns");
    if (columns != nullptr) {
      // Columns of the other kind are read and not used (data/parser.py: DatasetAttr.join).
      refuse_unknown(*columns, {"messages", "tools", "system", "prompt", "query", "response"},
                     name + ".columns");
      for (const char* column : {"tools", "system"})
        if (const std::string theirs = text_of(*columns, column); !theirs.empty())
          set.columns[column] = theirs;
    }
    set.columns["messages"] =
        columns == nullptr ? "conversations" : text_of(*columns, "messages", "conversations");
    read_tags(entry, set, name);
  } else {
    refuse(formatted("{}: formatting '{}' is not known here; alpaca, sharegpt and openai are", where,
                     excerpt(formatting)));
  }
  return set;
}

// Reads a name without an entry in the list: an entry elsewhere, a file, or a data set of the hub.
DataSet read_loose(const Layer& layer, const Node& name, bool is_llama_factory) {
  DataSet set;
  const Said* split = layer.part("@split");
  const Said* subset = layer.part("@subset");
  find_files(layer, name, name.text, split == nullptr ? "" : split->value.text,
             subset == nullptr ? "" : subset->value.text, set);
  if (is_llama_factory && !set.missing.empty())
    set.missing += "; LLaMA-Factory looks the name up in dataset_info.json (dataset_dir)";
  return set;
}

}  // namespace

std::vector<DataSet> read_llama_factory(const Layer& layer, const Said& names) {
  if (names.value.items.size() > kMostSets) refuse(formatted("names more than {} data sets", kMostSets));
  const bool is_llama_factory = layer.tool() == Tool::llama_factory;
  const Said* dir = layer.part("@dataset_dir");
  const Node at = dir != nullptr ? dir->value : layer.locate(scalar_at(names.value, "data"));
  const fs::path folder = layer.source().folder / at.text;
  const fs::path file = folder / "dataset_info.json";
  std::error_code ignored;
  std::vector<DataSet> sets;
  const bool has_list = fs::exists(file, ignored);
  const Node list = has_list ? layer.read_file(scalar_at(at, file.string())) : Node{};
  const Said* samples = layer.part("@max_samples");
  for (const Node& name : names.value.items) {
    const Node* entry = find_node(list, name.text);
    if (entry == nullptr && has_list && is_llama_factory) {
      std::vector<std::string> known;
      for (const Node& item : list.items) known.push_back(item.key);
      sets.emplace_back();
      sets.back().missing = formatted("{}: has no data set '{}'{}", file.string(), excerpt(name.text),
                                      did_you_mean(name.text.substr(0, 40), known));
    } else if (entry != nullptr) {
      sets.push_back(
          read_entry(layer, *entry, folder, formatted("{}: '{}'", file.string(), name.text), name.text));
    } else {
      sets.push_back(read_loose(layer, name, is_llama_factory));
    }
    if (samples != nullptr) {
      if (!sets.back().rows.empty()) refuse("max_samples beside a split with a range does not exist here");
      sets.back().rows = ":" + samples->value.text;
    }
  }
  return sets;
}

// The token that ends a text in pre-training: the template replaces the tokenizer's (template.py:
// fix_special_tokens, and processor/pretrain.py for llama3).
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kReplacedEnds = {
    {{"llama3", "<|end_of_text|>"},
     {"chatml", "<|im_end|>"},
     {"chatml_de", "<|im_end|>"},
     {"mimo", "<|im_end|>"},
     {"qwen", "<|im_end|>"},
     {"qwen3", "<|im_end|>"},
     {"qwen3_5", "<|im_end|>"},
     {"qwen3_5_nothink", "<|im_end|>"},
     {"qwen3_6", "<|im_end|>"},
     {"qwen3_nothink", "<|im_end|>"},
     {"qwen3_unthinking", "<|im_end|>"},
     {"gemma", "<end_of_turn>"},
     {"phi", "<|end|>"},
     {"phi4", "<|im_end|>"},
     {"phi4_mini", "<|end|>"},
     {"yi", ""}}};

namespace {

// data/template.py: of these names the templates differ from others in what becomes of images alone.
std::string of_texts(const std::string& name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 18> kSame = {
      {{"gemma3", "gemma"},
       {"gemma3n", "gemma"},
       {"llava", "vicuna"},
       {"llava_next", "vicuna"},
       {"llava_next_llama3", "llama3"},
       {"llava_next_mistral", "mistral"},
       {"llava_next_video", "vicuna"},
       {"llava_next_yi", "yi"},
       {"ministral3", "ministral"},
       {"mllama", "llama3"},
       {"pixtral", "ministral"},
       {"qwen3_omni", "qwen3"},
       {"qwen3_omni_nothink", "qwen3_nothink"},
       {"qwen3_vl", "qwen3"},
       {"qwen3_vl_nothink", "qwen3_nothink"},
       {"smollm", "yi"},
       {"video_llava", "vicuna"},
       {"keye_vl", "qwen3"}}};
  const auto same =
      std::find_if(kSame.begin(), kSame.end(), [&](const auto& one) { return one.first == name; });
  return std::string(same == kSame.end() ? name : same->second);
}

// data/template.py, ReasoningTemplate: of templates that are known here, those put an empty thought into the
// prompt where it is off; others never ask.
bool leaves_thoughts_out(const Layer& layer) {
  const Said* thinking = layer.part("@thinking");
  const Said* name = layer.part("@template");
  return thinking != nullptr && !is_true(thinking) && name != nullptr &&
         of_texts(name->value.text) == "qwen3";
}

void combine_thinking(Layer& layer) {
  if (!layer.says({"@thinking"})) return;
  const Said* thinking = layer.part("@thinking");
  const Said* name = layer.part("@template");
  const std::string text = name == nullptr ? "" : of_texts(name->value.text);
  constexpr std::array<std::string_view, 6> kThink = {"qwen3",     "qwen3_5",    "qwen3_6",
                                                      "deepseek3", "deepseekr1", "mimo"};
  const bool thinks = std::find(kThink.begin(), kThink.end(), text) != kThink.end();
  if (leaves_thoughts_out(layer)) return;  // a template of its own
  if (!is_true(thinking) && thinks)
    layer.refuse(*thinking,
                 "'false': answers without thoughts exist here with template: qwen3 alone; template: "
                 "qwen3_nothink has no thoughts at all");
  else
    layer.ignore(*thinking, thinks ? "empty thoughts are trained" : "read by templates with thoughts only",
                 true);
}

// stage: pt ends texts with the tokenizer's EOS, which the template may replace. LLaMA-Factory makes an
// exception for the template named llama3 alone, so its copies (mllama, llava_next_llama3) end otherwise.
void combine_end_of_texts(Layer& layer, const Said& name) {
  const auto& names = template_names();
  const std::string same = of_texts(name.value.text);
  const bool is_known = std::find(names.begin(), names.end(), "llama-factory/" + same) != names.end();
  if (!is_known || (same == "llama3" && name.value.text != same))
    return layer.refuse(name,
                        "the end-of-text token that this template sets is not known here; set "
                        "data.special_tokens: {eos_token: TOKEN}, or null for the tokenizer's own",
                        "data.special_tokens");
  for (const auto& [known, end] : kReplacedEnds) {
    if (same != known || end.empty()) continue;
    Node tokens = scalar_at(name.value, "");
    tokens.kind = Node::Kind::map;
    tokens.items.push_back(scalar_at(name.value, end));
    tokens.items.back().key = "eos_token";
    layer.emit("data.special_tokens", tokens, {&name});
  }
  layer.ignore(name, "texts have no template");
}

// Returns true if the model's tokenizer has add_bos_token, which pretrain.py asks for: tokenizer_config.json says
// it, or else the class of the tokenizer decides. Returns nothing if the model is not on this machine.
std::optional<bool> adds_bos(const Layer& layer, const Node& model) {
  const Located located = locate_on_hub("model", model, layer.source().folder);
  const fs::path file = layer.source().folder / located.node.text / "tokenizer_config.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return std::nullopt;
  const auto read = read_whole(layer, model, file);
  if (!read) return std::nullopt;
  const Node& config = *read;
  if (const Node* said = find_node(config, "add_bos_token"); said != nullptr)
    return read_foreign_flag(*said).value_or(false);
  const std::string kind = text_of(config, "tokenizer_class");
  static constexpr std::array<std::string_view, 4> kThatAdd = {"Llama", "CodeLlama", "Gemma", "Cohere"};
  return std::ranges::any_of(kThatAdd, [&](std::string_view name) {
    return kind == std::string(name) + "Tokenizer" || kind == std::string(name) + "TokenizerFast";
  });
}

// stage: pt begins texts as the tokenizer begins them where that has add_bos_token.
void combine_begin_of_texts(Layer& layer) {
  const Node* task = layer.given("task");
  const bool is_text = task != nullptr ? task->text == "pretrain" : layer.before().task == Task::pretrain;
  const Node* model = layer.given("model");
  if (!is_text || (model == nullptr && task == nullptr)) return;
  const auto adds = model != nullptr ? adds_bos(layer, *model) : std::nullopt;
  if (adds || task != nullptr) layer.emit_default("data.bos", adds.value_or(true) ? "true" : "false");
}

}  // namespace

void combine_llama_factory(Layer& layer) {
  if (layer.tool() != Tool::llama_factory) return;
  combine_thinking(layer);
  combine_begin_of_texts(layer);
  const Said* name = layer.part("@template");
  if (!layer.is_recipe() && !layer.says({"@template"}) && (name == nullptr || !layer.says({"@thinking"})))
    return;
  const Node* task = layer.given("task");
  if (task != nullptr && task->text == "pretrain") {
    if (name != nullptr) combine_end_of_texts(layer, *name);
    // pretrain.py joins all texts and cuts them, and does so unless packing: false keeps them apart.
    const Said* packing = layer.part("@packing");
    if (packing == nullptr && layer.given("data.packing") == nullptr)
      layer.emit_default("data.packing", "joined");
    return;
  }
  if (task != nullptr && task->text == "reward") layer.emit_default("reward.head", "value");
  if (name == nullptr) {
    if (layer.given("data.template") == nullptr) layer.read_once_as("data.template", "auto");
    layer.emit_default("data.template", "llama-factory");
    return;
  }
  const bool unthinking = leaves_thoughts_out(layer);
  const std::string ours = "llama-factory/" + (unthinking ? "qwen3_unthinking" : of_texts(name->value.text));
  const auto& names = template_names();
  if (std::find(names.begin(), names.end(), ours) != names.end())
    return layer.emit("data.template", ours, present({name, unthinking ? layer.part("@thinking") : nullptr}));
  std::vector<std::string> known;
  for (const std::string& one : names)
    if (one.starts_with("llama-factory/")) known.push_back(one.substr(ours.find('/') + 1));
  layer.refuse(
      *name,
      formatted("the template '{}' does not exist here; known are {}, and data.template says another one",
                excerpt(name->value.text), join(known, ", ")),
      "data.template");
}

}  // namespace plimsoll
