#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "recipe/combine.h"
#include "recipe/foreign_value.h"
#include "recipe/hub.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSets = 1000;  // bounds the time that a recipe can cost

// What a tool says of one data set, in our words. "" and empty: not said.
struct DataSet {
  std::vector<std::string> files;
  std::string format;
  std::map<std::string, std::string> columns;
  std::string chat_template;
};

[[noreturn]] void refuse(const std::string& what) { throw UsageError(what); }

std::string text_of(const Node& map, std::string_view key, const std::string& otherwise = "") {
  const Node* node = find_node(map, key);
  return node == nullptr || node->kind == Node::Kind::null ? otherwise : node->text;
}

// Keys of a map that this program does not know, but for those that are off.
void refuse_unknown(const Node& map, std::initializer_list<std::string_view> known,
                    const std::string& where) {
  for (const Node& item : map.items) {
    if (std::find(known.begin(), known.end(), item.key) != known.end() || is_off(item)) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    refuse(where + ": '" + excerpt(item.key) + "' is not known here" +
           did_you_mean(item.key.substr(0, 40), names));
  }
}

// A part of a split, such as train[:10%], has no key here.
void check_split(const std::string& split) {
  if (split.find_first_of("[+:") != std::string::npos)
    refuse("split '" + excerpt(split) + "': parts of splits do not exist here");
}

// A file or folder beside the recipe or the working directory, or a data set of the hub.
std::vector<std::string> files_of(const Layer& layer, const Node& at, const std::string& name,
                                  const std::string& split, const std::string& subset) {
  check_split(split);
  const Node path = layer.locate(scalar_at(at, name));
  std::error_code ignored;
  if (fs::exists(layer.source().folder / path.text, ignored)) return {path.text};
  const auto found = is_hub_name(name, true) ? find_in_hub_cache(HubKind::dataset, name) : std::nullopt;
  if (found) return split_files(*found, split.empty() ? "train" : split, subset);
  if (is_hub_name(name) || name.find('.') == std::string::npos)
    refuse("there is no '" + name + "' in " + layer.source().folder.string() +
           ", nor in the Hugging Face cache " + hub_cache().string() +
           "; where the name is one of the hub's: " + download_command(HubKind::dataset, name));
  return {name};
}

// `files` of a loader that has the format as its name: {path: json, data_files: a.jsonl}.
std::vector<std::string> listed_files(const Layer& layer, const Node& node) {
  const auto names = read_foreign_names(node);
  if (!names) refuse("data_files: expected a file or a list of them");
  std::vector<std::string> files;
  for (const std::string& name : *names) files.push_back(layer.locate(scalar_at(node, name)).text);
  return files;
}

bool is_loader(const std::string& name) {
  return name == "json" || name == "parquet" || name == "text" || name == "csv" || name == "arrow";
}

// --- LLaMA-Factory -------------------------------------------------------------------------------------

void read_alpaca_columns(const Node& entry, bool is_text, DataSet& set, const std::string& where) {
  const Node* columns = find_node(entry, "columns");
  if (columns == nullptr) {
    if (is_text) set = {set.files, "text", {{"text", "instruction"}}, ""};
    return;  // instruction, input, output: the loader knows them, and refuses an 'input' that it cannot use
  }
  refuse_unknown(*columns, {"prompt", "response"}, where + ": columns");
  if (is_text) {
    set.format = "text";
    set.columns["text"] = text_of(*columns, "prompt", "instruction");
    return;
  }
  set.format = "prompt-response";
  set.columns = {{"prompt", text_of(*columns, "prompt", "instruction")},
                 {"response", text_of(*columns, "response", "output")}};
}

DataSet read_info_entry(const Layer& layer, const Node& entry, const fs::path& folder,
                        const std::string& where) {
  refuse_unknown(entry,
                 {"file_name", "hf_hub_url", "formatting", "columns", "ranking", "subset", "split", "tags"},
                 where);
  DataSet set;
  const std::string file = text_of(entry, "file_name");
  const std::string hub = text_of(entry, "hf_hub_url");
  if (file.empty() && hub.empty()) refuse(where + ": has neither file_name nor hf_hub_url");
  set.files = !file.empty() ? std::vector<std::string>{(folder / file).string()}
                            : files_of(layer, entry, hub, text_of(entry, "split"), text_of(entry, "subset"));
  const std::string formatting = text_of(entry, "formatting", "alpaca");
  const Node* task = layer.given("task");
  const bool is_text = task != nullptr && task->text == "pretrain";
  const Node* ranking = find_node(entry, "ranking");
  if (ranking != nullptr && !is_off(*ranking)) {
    set.format = "preference";
  } else if (formatting == "alpaca") {
    read_alpaca_columns(entry, is_text, set, where);
  } else if (formatting == "sharegpt") {
    set.format = "messages";
    if (const Node* columns = find_node(entry, "columns"))
      set.columns["messages"] = text_of(*columns, "messages", "conversations");
  } else {
    refuse(where + ": formatting '" + excerpt(formatting) + "' is not known here; alpaca and sharegpt are");
  }
  return set;
}

std::vector<DataSet> read_named(const Layer& layer, const Said& names) {
  if (names.value.items.size() > kMostSets)
    refuse("names more than " + std::to_string(kMostSets) + " data sets");
  const Said* dir = layer.part("@dataset_dir");
  const Node at = dir != nullptr ? dir->value : layer.locate(scalar_at(names.value, "data"));
  const fs::path folder = layer.source().folder / at.text;
  const fs::path file = folder / "dataset_info.json";
  std::error_code ignored;
  std::vector<DataSet> sets;
  const bool has_list = fs::exists(file, ignored);
  const Node list = has_list ? layer.read_file(scalar_at(at, file.string())) : Node{};
  for (const Node& name : names.value.items) {
    const Node* entry = find_node(list, name.text);
    if (entry != nullptr) {
      sets.push_back(read_info_entry(layer, *entry, folder, file.string() + ": '" + name.text + "'"));
      continue;
    }
    if (has_list && layer.tool() == Tool::llama_factory) {
      std::vector<std::string> known;
      for (const Node& item : list.items) known.push_back(item.key);
      refuse(file.string() + ": has no data set '" + excerpt(name.text) + "'" +
             did_you_mean(name.text.substr(0, 40), known));
    }
    const Said* split = layer.part("@split");
    const Said* subset = layer.part("@subset");
    sets.push_back({files_of(layer, name, name.text, split == nullptr ? "" : split->value.text,
                             subset == nullptr ? "" : subset->value.text),
                    "",
                    {},
                    ""});
  }
  return sets;
}

// --- axolotl -------------------------------------------------------------------------------------------

// A row format of the user's own: {field_instruction: question, field_output: answer}.
void read_custom_type(const Node& type, DataSet& set) {
  refuse_unknown(type, {"field_instruction", "field_output", "format", "no_input_format"}, "type");
  for (const char* key : {"format", "no_input_format"})
    if (const std::string format = text_of(type, key, "{instruction}"); format != "{instruction}")
      refuse(std::string(key) + ": a format of one's own does not exist here; '{instruction}' alone does");
  set.format = "prompt-response";
  set.chat_template = "plain";
  set.columns = {{"prompt", text_of(type, "field_instruction", "instruction")},
                 {"response", text_of(type, "field_output", "output")}};
}

DataSet read_axolotl_entry(const Layer& layer, const Node& entry) {
  refuse_unknown(entry,
                 {"path", "type", "ds_type", "data_files", "split", "name", "field", "chat_template",
                  "field_messages", "message_property_mappings"},
                 "datasets");
  DataSet set;
  const Node* files = find_node(entry, "data_files");
  const std::string path = text_of(entry, "path");
  if (path.empty()) refuse("datasets: an entry has no path");
  check_split(text_of(entry, "split"));
  set.files = files != nullptr && !is_off(*files)
                  ? listed_files(layer, *files)
                  : files_of(layer, entry, path, text_of(entry, "split"), text_of(entry, "name"));
  const Node* type = find_node(entry, "type");
  if (type == nullptr) return set;
  if (type->kind == Node::Kind::map) {
    read_custom_type(*type, set);
  } else if (type->text == "completion") {
    set.format = "text";
    set.columns["text"] = text_of(entry, "field", "text");
  } else if (type->text == "alpaca") {
    set.format = "prompt-response";
    set.chat_template = "alpaca";
  } else if (type->text == "chat_template") {
    set.format = "messages";
    set.columns["messages"] = text_of(entry, "field_messages", "messages");
    const std::string chat = text_of(entry, "chat_template");
    if (!chat.empty() && chat != "tokenizer_default") set.chat_template = chat;
  } else {
    refuse("datasets: type '" + excerpt(type->text) +
           "' is not known here; completion, alpaca, chat_template and a map of fields are");
  }
  return set;
}

std::vector<DataSet> read_axolotl(const Layer& layer, const Node& list) {
  if (list.kind != Node::Kind::list) refuse("expected a list of data sets, found " + describe(list));
  std::vector<DataSet> sets;
  for (const Node& entry : list.items) {
    if (entry.kind != Node::Kind::map) refuse("expected a list of maps, found " + describe(entry));
    sets.push_back(read_axolotl_entry(layer, entry));
  }
  return sets;
}

// --- torchtune -----------------------------------------------------------------------------------------

DataSet read_torchtune(const Layer& layer, const Said& component) {
  const auto text = [&](std::string_view name) {
    const Said* said = layer.part(name);
    return said == nullptr ? std::string() : said->value.text;
  };
  DataSet set;
  const std::string source = text("@source");
  check_split(text("@split"));
  if (const Said* files = layer.part("@data_files"))
    set.files = listed_files(layer, files->value);
  else if (!source.empty() && !is_loader(source))
    set.files = files_of(layer, component.value, source, text("@split"), text("@subset"));
  else
    refuse("source and data_files say no file");
  const std::string name = word_of(component.value, "_component_");
  const Said* map = layer.part("@column_map");
  if (name == "text_completion_dataset") {
    set.format = "text";
    const std::string column = text("@text_column");
    set.columns["text"] = column.empty() ? "text" : column;
  } else if (name == "alpaca_dataset" || name == "alpaca_cleaned_dataset") {
    set.format = "prompt-response";
    set.chat_template = "alpaca";
    if (map != nullptr) refuse("column_map: rows of the Alpaca data set have columns of their own");
  } else if (name == "instruct_dataset" || name == "chat_dataset") {
    refuse(name +
           " writes torchtune's own chat tags around its rows; say data.format and data.template instead");
  } else {
    refuse("'" + excerpt(component.value.text) + "' is not known here; text_completion_dataset is");
  }
  return set;
}

// --- all -----------------------------------------------------------------------------------------------

void emit_sets(Layer& layer, const std::string& key, const std::vector<DataSet>& sets, const Said& said) {
  std::vector<std::string> files;
  for (const DataSet& set : sets) {
    if (set.format != sets.front().format || set.columns != sets.front().columns ||
        set.chat_template != sets.front().chat_template)
      refuse("data sets of different formats cannot be mixed yet");
    files.insert(files.end(), set.files.begin(), set.files.end());
  }
  if (key == "data.eval" && files.size() > 1) refuse("evaluation reads one file or folder");
  layer.emit(key, files.size() == 1 ? scalar_at(said.value, files.front()) : list_at(said.value, files),
             {&said});
  const DataSet& set = sets.front();
  if (!set.format.empty()) layer.emit("data.format", set.format, {&said});
  if (!set.chat_template.empty()) layer.emit("data.template", set.chat_template, {&said});
  if (set.columns.empty()) return;
  Node columns = scalar_at(said.value, "");
  columns.kind = Node::Kind::map;
  for (const auto& [name, column] : set.columns) {
    columns.items.push_back(scalar_at(said.value, column));
    columns.items.back().key = name;
  }
  layer.emit("data.columns", columns, {&said});
}

template <class Read>
void try_emit(Layer& layer, std::string_view part, const std::string& key, Read read) {
  const Said* said = layer.part(part);
  if (!layer.says({part})) return;
  try {
    emit_sets(layer, key, read(*said), *said);
  } catch (const UsageError& error) {
    layer.refuse(*said, error.what());
  }
}

}  // namespace

void combine_data(Layer& layer) {
  const auto named = [&](const Said& said) { return read_named(layer, said); };
  const auto listed = [&](const Said& said) { return read_axolotl(layer, said.value); };
  try_emit(layer, "@dataset", "data.train", named);
  try_emit(layer, "@eval_dataset", "data.eval", named);
  try_emit(layer, "@datasets", "data.train", listed);
  try_emit(layer, "@test_datasets", "data.eval", listed);
  try_emit(layer, "@component", "data.train",
           [&](const Said& said) { return std::vector<DataSet>{read_torchtune(layer, said)}; });
  const Said* column = layer.part("@text_column");
  if (layer.says({"@text_column"}) && layer.part("@component") == nullptr) {
    Node columns = scalar_at(column->value, "");
    columns.kind = Node::Kind::map;
    columns.items.push_back(column->value);
    columns.items.back().key = "text";
    layer.emit("data.format", "text", {column});
    layer.emit("data.columns", columns, {column});
  }
  for (const std::string_view part :
       {"@dataset_dir", "@split", "@subset", "@source", "@data_files", "@column_map"})
    if (layer.says({part}) && !layer.says({"@dataset", "@eval_dataset", "@component"}))
      layer.ignore(*layer.part(part), "no data set is named beside it");
}

}  // namespace plimsoll
