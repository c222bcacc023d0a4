// Rows of text files and of Arrow, by the first byte: CSV (c), tab-separated (t), JSON Lines (l), JSON (j),
// Arrow's IPC (a). They are read in each format that their columns have, and become examples. The messages of
// a conversation (m) are read alone.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "chat/conversation.h"
#include "data/encode/messages.h"
#include "data/encode/row_encoder.h"
#include "data/files/cell.h"
#include "data/files/memory_pool.h"
#include "data/rows/columns.h"
#include "files/json.h"
#include "fuzz/target.h"

using namespace plimsoll;

namespace {

constexpr int64_t kRows = 64;

std::unique_ptr<DataFile> open_file(char kind, const std::string& path, CappedMemoryPool& pool) {
  if (kind == 'c') return open_csv(path, ',', {});
  if (kind == 't') return open_csv(path, '\t', {});
  if (kind == 'l') return open_jsonl(path, RowErrors::skip);
  if (kind == 'j') return open_json(path, RowErrors::skip);
  if (kind == 'a') return open_arrow(path, pool);
  throw UsageError("no kind of file");
}

ExampleEncoder encoder_of(const ColumnBinding& binding) {
  RowEncoding rows{.columns = binding, .samples = {.max_length = 32}, .model = {.vocab_size = 256}};
  if (binding.format == RowFormat::preference) rows.samples.task.task = Task::dpo;
  if (binding.format == RowFormat::sentence_label) {
    rows.samples.task.task = Task::classify;
    rows.samples.task.outputs = 3;
  }
  rows.texts.tokenize = [](std::string_view text, std::vector<int32_t>& ids) {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  };
  rows.converse = [](const Conversation& conversation, const auto&, Example& example) {
    for (const char c :
         conversation.messages.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))
      example.ids.push_back(static_cast<unsigned char>(c));
    example.labels = example.ids;
  };
  return ExampleEncoder(rows);
}

void read_rows(DataFile& file, const ColumnBinding& binding, ReadAs as) {
  const std::vector<Unit> units = file.select(binding.columns, as);
  const ExampleEncoder encoder = encoder_of(binding);
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  Row cells, alone;
  Example example;
  int64_t first_row = 0;
  for (size_t unit = 0; unit < std::min<size_t>(units.size(), 4); first_row += units[unit++].rows) {
    std::unique_ptr<Block> block;
    if (!accepted([&] { block = file.load(unit); })) continue;
    for (int64_t row = 0; row < std::min(units[unit].rows, kRows); ++row)
      accepted([&] {
        block->read(row, cells);
        check_internal(cells.size() == binding.columns.size(), "a row has other cells than columns");
        const RowPart part = file.load_row(first_row + row);
        part.block->read(first_row + row - part.first_row, alone);
        for (size_t i = 0; i < cells.size(); ++i)
          check_internal(alone[i].text == cells[i].text && alone[i].ids == cells[i].ids &&
                             alone[i].json.dump(-1, ' ', false, kReplace) ==
                                 cells[i].json.dump(-1, ' ', false, kReplace),
                         "a row by itself is another");
        encoder.encode(
            cells, [&] { return block->where(row); }, example);
      });
  }
}

void read_file(char kind, const std::string& path) {
  CappedMemoryPool pool(64 * kMiB);
  const std::unique_ptr<DataFile> file = open_file(kind, path, pool);
  for (const auto& set : file->column_sets()) file->prefer(set);
  for (const auto& [format, name] : kRowFormats)
    accepted([&, format = format] {
      const ColumnBinding binding = bind_columns(file->columns(), format, {}, "rows");
      read_rows(*file, binding, binding.read_as());
    });
  ColumnBinding all{RowFormat::text, {}};
  for (const Column& column : file->columns())
    if (all.columns.size() < 100) all.columns.push_back(column.name);
  accepted([&] { file->select(all.columns, ReadAs::json); });
}

void read_messages(std::string_view text) {
  const auto where = [] { return std::string("rows.jsonl:1"); };
  const auto row = parse_members(text, std::vector<std::string>{"messages", "tools"}, "rows.jsonl:1");
  const Conversation conversation = read_conversation(row[0], row[1], where);
  check_internal(!conversation.messages.empty(), "a conversation without messages");
  for (const auto& message : conversation.messages) learnt_by_itself(message);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile holder;
  const std::string_view text = text_of(data, size);
  if (text.empty()) return 0;
  accepted([&] {
    if (text.front() == 'm') return read_messages(text.substr(1));
    read_file(text.front(), holder.holding(text.substr(1)));
  });
  return 0;
}
