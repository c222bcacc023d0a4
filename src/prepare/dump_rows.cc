#include "prepare/dump_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/batch/row_reader.h"

namespace plimsoll {

std::string dump_rows(DataSource& source, int64_t count) {
  RowReader reader(source.dataset, source.rows, {.shuffle = Shuffle::off});
  Example example;
  std::string lines;
  for (int64_t i = 0; i < std::min(count, source.rows.size()); ++i) {
    const int64_t row = source.rows.row(i);
    reader.encode_row(row, source.encoder, example);
    nlohmann::ordered_json line = {{"where", source.dataset.where(row)}};
    if (!example.damage.empty())
      line["damage"] = example.damage;
    else if (rule_of(source.encoder.samples().task.task).scores) {
      line.update({{"ids", example.ids}, {"ends", example.ends}});
      if (example.second >= 0) line["second"] = example.second;
      line.update({{"targets", example.values}, {"whole_length", example.whole_length}});
    } else {
      line.update({{"ids", example.ids}, {"labels", example.labels}});
      if (!example.ends.empty()) line["ends"] = example.ends;
      line["whole_length"] = example.whole_length;
    }
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return lines;
}

}  // namespace plimsoll
