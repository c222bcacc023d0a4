// Chooses the columns of a data set that an example is made of.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/data_file.h"
#include "data/rows/labels.h"
#include "tasks/rows.h"

namespace plimsoll {

// The columns to select, in the order in which the format's parts come: prompt, response; messages
// and, where there are any, tools and system; text; input_ids and, where there are any, labels; instruction, output and,
// where there are any, input, system, history.
struct ColumnBinding {
  RowFormat format = RowFormat::text;
  std::vector<std::string> columns = {};
  std::vector<std::string> parts = {};                  // what each column is to the format
  std::string message_role = {}, message_content = {};  // keys of a message that are not the usual ones
  bool talks = false;                                   // a preference's answers are lists of messages
  bool dialogues = false;  // they are texts of several turns (data/encode/dialogue.h): seen in the rows
  bool ready = false;      // rows are token ids: no tokenizer is needed
  LabelLists lists = LabelLists::unknown;  // of labels that are lists: seen in the rows

  [[nodiscard]] ReadAs read_as() const {
    const bool kinds =
        format == RowFormat::prompt_response || format == RowFormat::text || format == RowFormat::input_ids;
    return kinds ? ReadAs::kind : ReadAs::json;
  }
};

// Finds the columns of a format, or the format by the columns when it is not given. `names` is data.columns:
// part to column, such as {prompt: question}. Throws UsageError that names the columns there are.
ColumnBinding bind_columns(std::span<const Column> columns, std::optional<RowFormat> format,
                           const std::map<std::string, std::string>& names, const std::string& where);

// The columns of rows that a model is to score and that hold no expected answer: for a classifier one or two
// texts; for a reward model two answers to compare, as preference has them, or one, which is a text, a list
// of messages, or a response to a prompt. One answer is the part "chosen".
ColumnBinding bind_to_score(std::span<const Column> columns, const std::map<std::string, std::string>& names,
                            bool rewards, const std::string& where);

// The cell of a part; null where the rows have none.
const nlohmann::ordered_json& part_of(const Row& row, const std::vector<std::string>& parts,
                                      std::string_view part);

}  // namespace plimsoll
