// axolotl: the list `datasets` (0.19.0: src/axolotl/utils/schemas/datasets.py, prompt_strategies/).
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/dialects/axolotl_formats.h"
#include "recipe/dialects/data_set.h"
#include "recipe/option.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {
namespace {

// A row format of the user's own (prompt_strategies/user_defined.py):
// {field_instruction: question, field_output: answer, format: "Q: {instruction}\nA:"}.
void read_custom_type(const Node& type, DataSet& set) {
  refuse_unknown(type,
                 {"system_prompt", "system_format", "field_system", "field_instruction", "field_input",
                  "field_output", "format", "no_input_format"},
                 "datasets.type");
  InstructionFormats formats;
  formats.with_input = text_of(type, "format", formats.with_input);
  formats.without_input = text_of(type, "no_input_format", formats.without_input);
  formats.system = text_of(type, "system_format", formats.system);
  formats.usual_system = text_of(type, "system_prompt");
  set.format = "alpaca";
  set.columns = {{"instruction", text_of(type, "field_instruction", "instruction")},
                 {"output", text_of(type, "field_output", "output")},
                 {"input", text_of(type, "field_input", "input")},
                 {"system", text_of(type, "field_system", "system")}};
  try {
    set.keys["data.template_source"] = instruction_template(formats);
  } catch (const UsageError& error) {
    refuse(
        formatted("'datasets.type': {}: {{instruction}} and {{input}} are in format, {{instruction}} in "
                  "no_input_format, {{system}} in system_format",
                  error.what()));
  }
  set.chat_template = "axolotl/formats";
}

// Names of roles and contents: of the entry itself in older versions, in a map in newer ones.
void read_message_names(const Node& entry, DataSet& set) {
  const Node* mapped = find_node(entry, "message_property_mappings");
  const Node none;
  const Node& names = mapped != nullptr && mapped->kind == Node::Kind::map ? *mapped : none;
  refuse_unknown(names, {"role", "content"}, "datasets.message_property_mappings");
  name_messages(text_of(names, "role", text_of(entry, "message_field_role", "role")),
                text_of(names, "content", text_of(entry, "message_field_content", "content")), set);
}

// `roles: {user: [human, user]}` is what is known anyway, or would have to be translated.
void check_roles(const Node& entry) {
  static const std::map<std::string, std::vector<std::string>> kKnown = {
      {"user", {"human", "user"}},
      {"assistant", {"gpt", "assistant", "chatgpt"}},
      {"system", {"system"}},
      {"tool", {"tool"}}};
  const Node* roles = find_node(entry, "roles");
  if (roles == nullptr || is_off(*roles)) return;
  for (const Node& role : roles->items) {
    const auto known = kKnown.find(role.key);
    const auto names = read_foreign_names(role).value_or(std::vector<std::string>{});
    for (const std::string& name : names)
      if (known == kKnown.end() ||
          std::find(known->second.begin(), known->second.end(), name) == known->second.end())
        refuse(formatted("'datasets.roles.{}': '{}' for {} does not exist here", excerpt(role.key),
                         excerpt(name), excerpt(role.key)));
  }
}

void check_targets(const Node& entry) {
  const Node* roles = find_node(entry, "roles_to_train");
  if (roles != nullptr && !is_off(*roles)) {
    const auto names = read_foreign_names(*roles);
    const bool answers =
        names && names->size() == 1 && (names->front() == "assistant" || names->front() == "gpt");
    if (!answers)
      refuse("'datasets.roles_to_train': learning other roles than the assistant's does not exist here");
  }
  const std::string end = text_of(entry, "train_on_eos", "turn");
  if (end != "turn")
    refuse(formatted("'datasets.train_on_eos': '{}' does not exist here; turn does", excerpt(end)));
}

// axolotl's names of the templates of conversations; those of alpaca rows and of plain texts are not among them.
std::vector<std::string> names_of_conversations() {
  constexpr std::string_view kTool = "axolotl/";
  std::vector<std::string> names;
  for (const std::string& one : template_names()) {
    if (!one.starts_with(kTool)) continue;
    const std::string name = one.substr(kTool.size());
    if (name != "plain" && name != "formats" && !name.starts_with("alpaca")) names.push_back(name);
  }
  return names;
}

// The template of a `chat_template` entry or of the whole recipe: by the name axolotl gives it.
std::string template_of(const std::string& name, const std::string& key) {
  if (name.empty() || name == "tokenizer_default" || name == "jinja") return "axolotl";
  const std::vector<std::string> known = names_of_conversations();
  if (std::ranges::find(known, name) != known.end()) return "axolotl/" + name;
  if (name.starts_with("tokenizer_default_fallback_"))
    return "axolotl";  // the fallback is for models without one, which are refused with its name
  refuse(formatted(
      "{}: the template '{}' does not exist here; known are tokenizer_default (the model folder's own), {}",
      key, excerpt(name), join(known, ", ")));
}

// The model's own where neither the entry nor the recipe names another.
std::string chat_template_of(const Layer& layer, const Node& entry) {
  const Said* chat = layer.part("@chat_template");
  const std::string of_entry = text_of(entry, "chat_template");
  if (!of_entry.empty()) return template_of(of_entry, "'datasets.chat_template'");
  return chat != nullptr ? template_of(chat->value.text, "chat_template") : "axolotl";
}

// prompt_strategies/dpo/chat_template.py: an answer apart from the messages that it answers, or whole
// conversations.
void read_preferences(const Layer& layer, const Node& entry, bool has_prompt, DataSet& set) {
  set.format = "preference";
  set.chat_template = chat_template_of(layer, entry);
  if (has_prompt) set.columns["prompt"] = text_of(entry, "field_messages", "messages");
  set.columns["chosen"] = text_of(entry, "field_chosen", "chosen");
  set.columns["rejected"] = text_of(entry, "field_rejected", "rejected");
  read_message_names(entry, set);
  check_roles(entry);
}

// prompt_strategies/dpo/chatml.py, llama3.py: texts in columns by the name behind the template's. A system message in a
// column of that name is read where it is there. Answers of conversations have their question in them.
bool read_named_pairs(const std::string& kind, DataSet& set) {
  static const std::map<std::string, std::map<std::string, std::string>> kColumns = {
      {"default", {{"prompt", "prompt"}, {"system", "system"}}},
      {"argilla",
       {{"prompt", "instruction"},
        {"chosen", "chosen_response"},
        {"rejected", "rejected_response"},
        {"system", "system"}}},
      {"argilla_chat", {}},
      {"icr", {{"prompt", "input"}, {"system", "system"}}},
      {"intel", {{"prompt", "question"}, {"system", "system"}}},
      {"prompt_pairs", {{"prompt", "prompt"}, {"system", "system"}}},
      {"ultra", {{"system", "system"}}}};
  const size_t dot = kind.find('.');
  const std::string name = kind.substr(0, dot);
  const auto columns = kColumns.find(dot == std::string::npos ? "default" : kind.substr(dot + 1));
  if ((name != "chatml" && name != "llama3") || columns == kColumns.end()) return false;
  set.format = "preference";
  set.chat_template = "axolotl/" + name;
  set.columns = columns->second;
  for (const char* answer : {"chosen", "rejected"}) set.columns.emplace(answer, answer);
  return true;
}

DataSet read_entry(const Layer& layer, const Node& entry);

void read_named(const AxolotlRows& rows, DataSet& set) {
  set.format = "alpaca";
  set.columns = {rows.columns.begin(), rows.columns.end()};
  set.chat_template = rows.chat_template.empty() ? "axolotl/formats" : rows.chat_template;
  if (rows.chat_template.empty()) set.keys["data.template_source"] = instruction_template(rows.formats);
}

// Kinds of rows; the trained part of each follows.
void read_kind(const Layer& layer, const Node& entry, const std::string& kind, DataSet& set) {
  if (const std::optional<AxolotlRows> named = named_rows(kind)) {
    read_named(*named, set);
  } else if (kind == "completion") {
    // completion.py: a document beyond sequence_len is cut into several sequences.
    set.format = "text";
    set.columns["text"] = text_of(entry, "field", "text");
    set.keys["data.bos"] = "true";
    set.keys["data.truncation"] = "refuse";
  } else if (kind == "alpaca" || kind == "alpaca:chat" || kind == "alpaca:chatml" || kind == "alpaca:phi") {
    set.format = "alpaca";
    set.chat_template = "axolotl/" + kind;
  } else if (kind == "alpaca_chat.load" || kind == "alpaca_chat") {
    set.format = "alpaca";
    set.chat_template = "axolotl/alpaca:chat";
  } else if (kind == "chat_template") {
    set.format = "messages";
    set.columns["messages"] = text_of(entry, "field_messages", "messages");
    set.chat_template = chat_template_of(layer, entry);
    read_message_names(entry, set);
    check_roles(entry);
    check_targets(entry);
  } else if (kind == "chat_template.default" || kind == "chat_template.argilla_chat" ||
             kind == "chat_template.argilla") {
    read_preferences(layer, entry, kind == "chat_template.default", set);
  } else if (!read_named_pairs(kind, set)) {
    refuse(formatted(
        "'datasets.type': '{}' does not exist here; alpaca, chat_template, completion, {}, a map of fields "
        "and, of preferences, chat_template.default, .argilla_chat and .argilla, and chatml and llama3 with .intel, .icr, "
        ".ultra, .argilla, .argilla_chat and .prompt_pairs do",
        excerpt(kind), named_row_types()));
  }
}

// axolotl 0.6 names what took the place of `type: sharegpt` (utils/schemas/validation.py: check_sharegpt):
// chat_template with these names. Its templates were FastChat's, of which `conversation` named one.
DataSet read_sharegpt(const Layer& layer, const Node& entry) {
  const std::string conversation = text_of(entry, "conversation");
  const Said* chat = layer.part("@chat_template");
  const bool is_llama3 = conversation == "llama3" || conversation == "llama-3";
  std::string name = conversation == "chatml" ? "chatml" : is_llama3 ? "llama3" : "";
  if (conversation.empty() && chat != nullptr) name = chat->value.text;
  if (name.empty() || text_of(entry, "type") != "sharegpt")
    refuse(
        "'datasets.type': 'sharegpt' is no type of axolotl since 0.6, and the template that it chose before "
        "does not exist here; chat_template with field_messages: conversations is, and conversation: chatml "
        "is read as that");
  Node now = entry;
  std::erase_if(now.items, [](const Node& item) { return item.key == "type" || item.key == "conversation"; });
  for (const auto& [key, value] :
       {std::pair{"type", "chat_template"}, std::pair{"field_messages", "conversations"},
        std::pair{"message_field_role", "from"}, std::pair{"message_field_content", "value"}})
    if (find_node(now, key) == nullptr) {
      now.items.push_back(scalar_at(entry, value));
      now.items.back().key = key;
    }
  if (!conversation.empty()) {
    now.items.push_back(scalar_at(entry, name));
    now.items.back().key = "chat_template";
  }
  return read_entry(layer, now);
}

// Names of columns that axolotl reads inside of a map `type` alone; those that are usual anyway change nothing.
Node without_usual_columns(const Node& entry) {
  Node kept = entry;
  std::erase_if(kept.items, [](const Node& item) {
    return (item.key == "field_instruction" && item.text == "instruction") ||
           (item.key == "field_input" && item.text == "input") ||
           (item.key == "field_output" && item.text == "output");
  });
  return kept;
}

DataSet read_entry(const Layer& layer, const Node& entry) {
  if (text_of(entry, "type").starts_with("sharegpt")) return read_sharegpt(layer, entry);
  refuse_unknown(without_usual_columns(entry),
                 {"path",
                  "type",
                  "ds_type",
                  "data_files",
                  "split",
                  "train_on_split",
                  "name",
                  "field",
                  "chat_template",
                  "field_messages",
                  "message_property_mappings",
                  "message_field_role",
                  "message_field_content",
                  "field_chosen",
                  "field_rejected",
                  "roles",
                  "roles_to_train",
                  "train_on_eos",
                  "trust_remote_code",
                  "cache_dir",
                  "preprocess_shards",
                  "revision"},
                 "datasets");
  DataSet set;
  const Node* files = find_node(entry, "data_files");
  const std::string path = text_of(entry, "path");
  const bool has_files = files != nullptr && !is_off(*files);
  const std::string loader = path.empty() ? text_of(entry, "ds_type") : path;
  if (path.empty() && !(has_files && is_loader(loader))) refuse("datasets: an entry has no path");
  const std::string split = text_of(entry, "split", text_of(entry, "train_on_split", "train"));
  if (has_files && is_loader(loader))
    list_files(layer, *files, split, set);
  else
    find_files(layer, entry, path, split, text_of(entry, "name"), set);
  const Node* type = find_node(entry, "type");
  if (type == nullptr || is_off(*type)) {  // utils/data/wrappers.py: rows of tokens that are ready
    set.format = "input-ids";
    return set;
  }
  if (type->kind == Node::Kind::map)
    read_custom_type(*type, set);
  else
    read_kind(layer, entry, type->text, set);
  return set;
}

// A stream's texts as pretraining_dataset names them (utils/data/sft.py, prompt_strategies/pretrain.py): each is a row
// that ends with its token; those beyond sequence_len become windows that overlap, which do not exist here.
DataSet read_text_stream(const Layer& layer, const Node& entry) {
  DataSet set;
  set.format = "text";
  set.columns["text"] = "text";
  set.keys = {{"data.bos", "true"}, {"data.truncation", "refuse"}};
  if (entry.kind == Node::Kind::scalar) {
    find_files(layer, entry, entry.text, "train", "", set);
    return set;
  }
  refuse_unknown(entry,
                 {"path", "name", "split", "text_column", "type", "trust_remote_code", "data_files", "skip"},
                 "pretraining_dataset");
  // utils/data/sft.py hands the type on without a column: completion reads text.
  const std::string type = text_of(entry, "type", "pretrain");
  if (type != "pretrain" && type != "completion")
    refuse(formatted("'pretraining_dataset.type': '{}' does not exist here; pretrain and completion do",
                     excerpt(type)));
  set.columns["text"] = type == "completion" ? "text" : text_of(entry, "text_column", "text");
  const std::string path = text_of(entry, "path");
  if (path.empty()) refuse("pretraining_dataset: an entry has no path");
  const Node* files = find_node(entry, "data_files");
  if (files != nullptr && !is_off(*files) && is_loader(path))
    list_files(layer, *files, text_of(entry, "split", "train"), set);
  else
    find_files(layer, entry, path, text_of(entry, "split", "train"), text_of(entry, "name"), set);
  if (const Node* skip = find_node(entry, "skip"); skip != nullptr && !is_off(*skip))
    set.rows = skip->text + ":";
  return set;
}

bool names_sharegpt(const Node& list) {
  return std::any_of(list.items.begin(), list.items.end(),
                     [](const Node& entry) { return text_of(entry, "type").starts_with("sharegpt"); });
}

}  // namespace

std::vector<DataSet> read_axolotl(const Layer& layer, const Node& list) {
  if (list.kind != Node::Kind::list) refuse("expected a list of data sets, found " + describe(list));
  std::vector<DataSet> sets;
  for (const Node& entry : list.items) {
    if (entry.kind != Node::Kind::map) refuse("expected a list of maps, found " + describe(entry));
    sets.push_back(read_entry(layer, entry));
  }
  return sets;
}

std::vector<DataSet> read_axolotl_stream(const Layer& layer, const Node& given) {
  if (given.kind != Node::Kind::list) return {read_text_stream(layer, given)};
  if (given.items.size() != 1) refuse("axolotl reads the first data set alone; keep that one");
  return {read_text_stream(layer, given.items.front())};
}

namespace {

// A stream needs whole texts packed apart; axolotl's other form joins texts that see each other.
void combine_stream(Layer& layer) {
  const Said* stream = layer.part("@stream");
  const Said* apart = layer.part("@stream_apart");
  const bool streams = stream != nullptr && !is_off(stream->value);
  if (layer.says({"@stream"}) && !streams) layer.ignore(*stream, "nothing is given", true);
  if (layer.says({"@stream_apart"}) && !(streams && apart->value.text == "false"))
    layer.ignore(*apart, "packed texts never see each other here");
  const Node* packing = layer.given("data.packing");
  if (!streams || !(layer.says({"@stream", "@stream_apart"}) || packing != nullptr)) return;
  const bool packs = packing != nullptr ? packing->is_word("true") : layer.before().data.packing;
  if (!packs)
    layer.refuse_until_later(
        *stream,
        "texts that are joined with others, which they see, do not exist here; with --set "
        "sample_packing=true they are packed apart",
        "data.packing");
  else if (apart != nullptr && apart->value.text == "false")
    layer.refuse_until_later(*apart, "packed texts that see each other do not exist here", "data.packing");
  layer.note(
      "stream",
      "pretraining_dataset is read as a data set whose texts come in an order of this program's own; axolotl "
      "shuffles a stream within a buffer");
}

}  // namespace

void combine_axolotl(Layer& layer) {
  if (layer.tool() != Tool::axolotl) return;
  combine_stream(layer);
  const Said* chat = layer.part("@chat_template");
  if (layer.says({"@chat_template"}) && layer.given("data.template") == nullptr)
    layer.ignore(*chat, "read for rows of the type chat_template");
  if (const Said* sets = layer.part("@datasets"); layer.says({"@datasets"}) && names_sharegpt(sets->value))
    layer.note("sharegpt",
               "type: sharegpt is read as chat_template, as axolotl has it since 0.6; before, the end of a "
               "turn was tokenised by itself");
  const Said* excess = layer.part("@excess");
  if (layer.says({"@excess"})) {
    static const std::map<std::string, std::string> kOurs = {
        {"drop", "drop"}, {"truncate", "right"}, {"raise", "refuse"}};
    const auto ours = kOurs.find(excess->value.text);
    if (ours == kOurs.end())
      return layer.refuse(
          *excess, formatted("expected drop, truncate or raise, found '{}'", excerpt(excess->value.text)));
    if (layer.given("data.truncation") == nullptr) layer.emit("data.truncation", ours->second, {excess});
  }
}

}  // namespace plimsoll
