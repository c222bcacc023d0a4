// One data set of another tool's recipe, in our words. Each tool has a file that reads its own keys for it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/translate/layer.h"

namespace plimsoll {

struct DataSet {
  std::vector<std::string> files;
  std::string missing;  // why there are no files on this machine; the rest is known all the same
  std::string rows;     // a range of them: ":95%"
  std::string format;   // "" and empty: not given
  std::map<std::string, std::string> columns;
  std::string chat_template;
  std::map<std::string, std::string> keys;  // further keys of ours that follow from the kind of rows
};

// Throw UsageError for what does not exist here.
std::vector<DataSet> read_llama_factory(const Layer& layer, const Said& names);
std::vector<DataSet> read_axolotl(const Layer& layer, const Node& list);
std::vector<DataSet> read_axolotl_stream(const Layer& layer, const Node& given);
std::vector<DataSet> read_torchtune(const Layer& layer, const Node& component);
std::vector<DataSet> read_trl(const Layer& layer, const Said& name, std::string_view split);
// `part` is a word of the split's name: train, or test.
std::vector<DataSet> read_trl_mixture(const Layer& layer, const Node& mixture, std::string_view part);

// --- what they share -------------------------------------------------------------------------------------

[[noreturn]] void refuse(const std::string& what);
std::string text_of(const Node& map, std::string_view key, const std::string& otherwise = "");
bool flag_of(const Node& map, std::string_view key, bool otherwise);
// Keys of a map that this program does not know, but for those that are off, each by its name.
void refuse_unknown(const Node& map, const std::vector<std::string>& known, const std::string& where);
// Finds the files of a data set: in the recipe's folder or the working directory, or of the hub. `split` is a
// name with or without a range in brackets (train[:10%]).
void find_files(const Layer& layer, const Node& at, const std::string& name, const std::string& split,
                const std::string& subset, DataSet& set);
// {path: json, data_files: a.jsonl}
void list_files(const Layer& layer, const Node& node, const std::string& split, DataSet& set);
// The name of a loader rather than of a data set: json, parquet, csv, ...
bool is_loader(const std::string& name);
// Messages whose role and content have these names.
void name_messages(const std::string& role, const std::string& content, DataSet& set);

}  // namespace plimsoll
