#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "recipe/dialects/data_set.h"
#include "recipe/hub.h"
#include "recipe/translate/combine.h"
#include "recipe/translate/combine_parts.h"
#include "recipe/translate/foreign_value.h"

namespace plimsoll {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) { throw UsageError(what); }

std::string text_of(const Node& map, std::string_view key, const std::string& otherwise) {
  const Node* node = find_node(map, key);
  return node == nullptr || node->kind == Node::Kind::null ? otherwise : node->text;
}

bool flag_of(const Node& map, std::string_view key, bool otherwise) {
  const Node* node = find_node(map, key);
  if (node == nullptr || node->kind == Node::Kind::null) return otherwise;
  const auto flag = read_foreign_flag(*node);
  if (!flag) refuse(formatted("{}: expected true or false, found {}", key, describe(*node)));
  return *flag;
}

void refuse_unknown(const Node& map, const std::vector<std::string>& known, const std::string& where) {
  for (const Node& item : map.items) {
    if (std::find(known.begin(), known.end(), item.key) != known.end() || is_off(item)) continue;
    refuse(formatted("'{}.{}' is not known here{}", where, excerpt(item.key),
                     did_you_mean(item.key.substr(0, 40), known)));
  }
}

namespace {

// Each of them exists here, so that other rows (data.train) put it right.
struct MixedFormats : UsageError {
  using UsageError::UsageError;
};

// "train[10%:20%]": the name, and the range in rows; parts that are put together have no word here.
std::string take_range(const std::string& split, std::string& rows) {
  if (split.find('+') != std::string::npos)
    refuse(formatted("split '{}': several splits together do not exist here; name the files in data.train",
                     excerpt(split)));
  const size_t open = split.find('[');
  if (open == std::string::npos) return split;
  rows = split.substr(open + 1, split.find(']') - open - 1);
  if (!split.ends_with(']') || !parse_row_range(rows))
    refuse(formatted("split '{}': expected a range such as train[:95%]", excerpt(split)));
  return split.substr(0, open);
}

}  // namespace

void find_files(const Layer& layer, const Node& at, const std::string& name, const std::string& split,
                const std::string& subset, DataSet& set) {
  const std::string whole = take_range(split, set.rows);
  const Node path = layer.locate(scalar_at(at, name));
  std::error_code ignored;
  if (fs::exists(layer.source().folder / path.text, ignored)) {
    set.files = {path.text};
    return;
  }
  const auto found = is_hub_name(name, true) ? find_in_hub_cache(HubKind::dataset, name) : std::nullopt;
  if (found) {
    set.files = split_files(*found, whole.empty() ? "train" : whole, subset);
    return;
  }
  const bool may_be_hub = is_hub_name(name) || name.find('.') == std::string::npos;
  if (may_be_hub)
    set.missing = formatted("there is no '{}' in {}, nor in the Hugging Face cache {}{}", name,
                            layer.source().folder.string(), hub_cache().string(),
                            where_to_find(HubKind::dataset, name));
  else
    set.files = {name};
}

void list_files(const Layer& layer, const Node& node, const std::string& split, DataSet& set) {
  take_range(split, set.rows);
  const auto names = read_foreign_names(node);
  if (!names) refuse("data_files: expected a file or a list of them");
  for (const std::string& name : *names) set.files.push_back(layer.locate(scalar_at(node, name)).text);
}

bool is_loader(const std::string& name) {
  static const std::set<std::string> kLoaders = {"json", "jsonl", "parquet", "text", "csv", "arrow"};
  return kLoaders.contains(name);
}

void name_messages(const std::string& role, const std::string& content, DataSet& set) {
  const bool usual = (role == "role" && content == "content") || (role == "from" && content == "value");
  if (usual) return;  // both are known without a word
  set.columns["message_role"] = role;
  set.columns["message_content"] = content;
}

namespace {

Node source_node(const Said& said, const std::string& file, const std::string& rows) {
  Node path = scalar_at(said.value, file);
  if (rows.empty()) return path;
  Node map = scalar_at(said.value, "");
  map.kind = Node::Kind::map;
  path.key = "path";
  map.items = {path, scalar_at(said.value, rows)};
  map.items[1].key = "rows";
  return map;
}

// One file stands by itself, more are a list.
Node sources_node(const Said& said, const std::vector<DataSet>& sets) {
  Node list = list_at(said.value, {});
  for (const DataSet& set : sets)
    for (const std::string& file : set.files) list.items.push_back(source_node(said, file, set.rows));
  return list.items.size() == 1 ? list.items.front() : list;
}

void require_alike(const std::vector<DataSet>& sets) {
  const DataSet& first = sets.front();
  for (const DataSet& set : sets) {
    if (set.chat_template != first.chat_template || set.keys != first.keys)
      refuse("data sets of different formats cannot be mixed yet");
    if (set.format != first.format || set.columns != first.columns)
      throw MixedFormats(
          "data sets of different formats cannot be mixed yet; --set data.train=FILE names rows of one format");
  }
}

// The format of the rows is that of the training data; data.eval is read alike.
void emit_sets(Layer& layer, const std::string& key, const std::vector<DataSet>& sets, const Said& said) {
  if (sets.empty()) return;
  const DataSet& set = sets.front();
  const auto emit_rules = [&] {
    if (!set.chat_template.empty()) layer.emit("data.template", set.chat_template, {&said});
    for (const auto& [name, value] : set.keys) layer.emit(name, value, {&said});
  };
  try {
    require_alike(sets);
  } catch (const MixedFormats&) {  // rows that take their place are rendered alike
    emit_rules();
    throw;
  }
  if (!set.format.empty()) layer.emit("data.format", set.format, {&said});
  emit_rules();
  if (!set.columns.empty()) {
    Node columns = scalar_at(said.value, "");
    columns.kind = Node::Kind::map;
    for (const auto& [name, column] : set.columns) {
      columns.items.push_back(scalar_at(said.value, column));
      columns.items.back().key = name;
    }
    layer.emit("data.columns", columns, {&said});
  }
  for (const DataSet& one : sets)
    if (!one.missing.empty())
      return layer.refuse(
          said,
          key == "data.eval"
              ? formatted("rows to evaluate on (--set data.eval=FILE names others): {}", one.missing)
              : one.missing,
          key);
  const Node sources = sources_node(said, sets);
  if (key == "data.eval" && sources.kind == Node::Kind::list)
    return layer.refuse(said, "evaluation reads one file or folder", key);
  layer.emit(key, sources, {&said});
}

template <class Read>
void try_emit(Layer& layer, std::string_view part, const std::string& key, Read read) {
  const Said* said = layer.part(part);
  if (!layer.says({part})) return;
  try {
    emit_sets(layer, key, read(*said), *said);
  } catch (const MixedFormats& error) {
    layer.refuse(*said, error.what(), key);
  } catch (const UsageError& error) {
    layer.refuse(*said, error.what());
  }
}

constexpr std::array<std::pair<std::string_view, const char*>, 9> kColumns = {
    {{"@text_column", "text"},
     {"@prompt_column", "prompt"},
     {"@summary_column", "response"},
     {"@response_column", "response"},
     {"@chosen_column", "chosen"},
     {"@rejected_column", "rejected"},
     {"@messages_column", "messages"},
     {"@sentence_column", "sentence"},
     {"@label_column", "label"}}};

// Columns that a script or TRL names; with run_summarization.py's `summary_column` text_column is its source.
void combine_columns(Layer& layer) {
  const bool says = std::ranges::any_of(kColumns, [&](const auto& one) { return layer.says({one.first}); });
  if (!says) return;
  std::vector<const Said*> from;
  Node columns;
  columns.kind = Node::Kind::map;
  const Said* summary = layer.part("@summary_column");
  for (const auto& [part, ours] : kColumns) {
    const Said* said = layer.part(part);
    if (said == nullptr) continue;
    if (said->value.items.size() > 1)
      return layer.refuse(*said,
                          "columns whose texts are joined: data.columns: {sentence, sentence2} reads a pair",
                          "data.columns");
    columns.items.push_back(said->value.items.empty() ? said->value : said->value.items.front());
    columns.items.back().key = part == "@text_column" && summary != nullptr ? "prompt" : ours;
    from.push_back(said);
  }
  if (summary != nullptr && find_node(columns, "prompt") == nullptr)
    return layer.refuse_until_later(*summary, "needs text_column too, the column of what is summarised",
                                    "data.columns");
  if (from.size() == 1 && layer.part("@text_column") != nullptr) layer.emit("data.format", "text", from);
  columns.line = columns.key_line = from.front()->value.line;
  layer.emit("data.columns", columns, from);
}

// A folder, or a part of a data set, that only the script knows to find its rows in.
void combine_rows_folder(Layer& layer) {
  for (const std::string_view part : {"@rows_folder", "@rows_part"})
    if (layer.says({part}))
      layer.refuse_until_later(*layer.part(part),
                               "only the script finds rows by it: --set data.train=FILE names them",
                               "data.train");
}

// TRL's script evaluates on another split of the data set where eval_strategy asks for it.
void combine_trl_evaluation(Layer& layer) {
  const Said* strategy = layer.part("@eval_strategy");
  if (layer.tool() != Tool::trl || strategy == nullptr || strategy->value.text == "no") return;
  const Said* split = layer.part("@test_split");
  if (layer.part("@dataset") == nullptr || !layer.says({"@dataset"})) return;
  try_emit(layer, "@dataset", "data.eval", [&](const Said& said) {
    return read_trl(layer, said, split == nullptr ? "test" : split->value.text);
  });
}

// The handbook's older form names the split to evaluate on after that to train on: [train_sft, test_sft].
void combine_mixture_evaluation(Layer& layer) {
  const Said* splits = layer.part("@mixture_splits");
  const Said* mixture = layer.part("@mixture");
  const Said* strategy = layer.part("@eval_strategy");
  if (splits == nullptr || mixture == nullptr || !layer.says({"@mixture_splits"})) return;
  const bool has_test =
      std::any_of(splits->value.items.begin(), splits->value.items.end(),
                  [](const Node& split) { return split.text.find("test") != std::string::npos; });
  const bool evaluates = strategy != nullptr && strategy->value.text != "no";
  if (!has_test || !evaluates || mixture->value.kind != Node::Kind::map ||
      layer.given("data.eval") != nullptr)
    return;
  std::vector<DataSet> sets;
  try {
    sets = read_trl_mixture(layer, mixture->value, "test");
  } catch (const UsageError&) {  // NOLINT: reported for the rows to train on
    return;
  }
  const bool is_one = sets.size() == 1 && sets.front().files.size() == 1 && sets.front().missing.empty();
  if (!is_one)
    return layer.ignore(*splits,
                        "rows to evaluate on are one file or folder here, on this machine: "
                        "--set data.eval=FILE names it");
  layer.emit("data.eval", sources_node(*splits, sets), {splits});
}

// Unsloth's name; a text has no answer to tell from its prompt, unless its template is looked for in it.
void combine_responses(Layer& layer, const Said& said) {
  const bool only = read_foreign_flag(said.value) == true;
  const Node* format = layer.given("data.format");
  if (only && format != nullptr && format->is_word("text"))
    return layer.refuse(
        said,
        "a text has no answer to tell from its prompt; rows of messages, or of a prompt and a response, "
        "have: data.format");
  layer.emit("data.train_on_prompt", only ? "false" : "true", {&said});
}

// transformers' scripts and qlora.py train on the first rows of their number; run_clm.py on the first blocks.
void combine_first_rows(Layer& layer, const Said& said) {
  if (is_off(said.value) || said.value.is_word("-1")) return layer.ignore(said, "off, as here", true);
  const auto count = read_foreign_whole(said.value);
  if (!count || *count < 1) return layer.refuse(said, "expected a whole number above 0");
  const Said* block = layer.part("@block_size");
  if (own_script(layer).starts_with("run_clm") || (block != nullptr && !is_off(block->value)))
    return layer.refuse(said, "counts blocks, after texts were joined; data.train: {path, rows} counts rows");
  const Node* rows = layer.given("data.train");
  if (rows != nullptr && rows->kind != Node::Kind::scalar)
    return layer.refuse(said,
                        "takes the first rows of one file; data.train: {path, rows} says a range of each");
  const bool narrows = layer.change("data.train", said, [&](Node& node) {
    Node source = source_node({node, node.key, "", 0}, node.text, formatted(":{}", *count));
    source.key = node.key;
    node = std::move(source);
  });
  if (!narrows) layer.ignore(said, "no data set is named with it");
}

}  // namespace

void combine_data(Layer& layer) {
  const bool of_trl = layer.tool() == Tool::trl;
  const auto named = [&](const Said& said) {
    const Said* split = layer.part("@split");
    return of_trl ? read_trl(layer, said, split == nullptr ? "train" : split->value.text)
                  : read_llama_factory(layer, said);
  };
  const auto listed = [&](const Said& said) { return read_axolotl(layer, said.value); };
  const auto component = [&](const Said& said) { return read_torchtune(layer, said.value); };
  try_emit(layer, "@dataset", "data.train", named);
  try_emit(layer, "@eval_dataset", "data.eval", named);
  try_emit(layer, "@datasets", "data.train", listed);
  if (const Said* stream = layer.part("@stream"); stream != nullptr && !is_off(stream->value))
    try_emit(layer, "@stream", "data.train",
             [&](const Said& said) { return read_axolotl_stream(layer, said.value); });
  try_emit(layer, "@test_datasets", "data.eval", listed);
  try_emit(layer, "@component", "data.train", component);
  try_emit(layer, "@val_component", "data.eval", component);
  try_emit(layer, "@mixture", "data.train",
           [&](const Said& said) { return read_trl_mixture(layer, said.value, "train"); });
  combine_trl_evaluation(layer);
  combine_mixture_evaluation(layer);
  combine_columns(layer);
  combine_rows_folder(layer);
  if (layer.says({"@first_rows"})) combine_first_rows(layer, *layer.part("@first_rows"));
  if (layer.says({"@responses_only"})) combine_responses(layer, *layer.part("@responses_only"));
  for (const std::string_view part : {"@dataset_dir", "@split", "@subset", "@test_split", "@max_samples"})
    if (layer.says({part}) && !layer.says({"@dataset", "@eval_dataset", "@mixture"}))
      layer.ignore(*layer.part(part), "no data set is named beside it");
}

}  // namespace plimsoll
