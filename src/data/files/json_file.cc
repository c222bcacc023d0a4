// JSON: a list of objects. Opening scans the file once and keeps where each unit starts, as for JSON Lines.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "data/files/json_block.h"
#include "data/files/json_list.h"
#include "data/files/scanned_file.h"
#include "files/json.h"

namespace plimsoll {
namespace {

struct JsonRange {
  int64_t start = 0;  // of the first row
  int64_t end = 0;    // of the last
  int64_t first_line = 1;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t longest = 0;
};

class JsonFile final : public DataFile {
 public:
  JsonFile(ScannedFile file, std::vector<JsonRange> ranges, RowMarks marks, RowErrors on_error)
      : file_(std::move(file)), ranges_(std::move(ranges)), marks_(std::move(marks)) {
    for (const JsonRange& range : ranges_) longest_ = std::max(longest_, range.longest);
    if (ranges_.empty()) return;
    const JsonRange& range = ranges_.front();
    const std::string text = file_.text(range.start, range.end);
    const std::vector<JsonRow> rows = rows_of(text, range.rows);
    sets_.read(text, rows, on_error, [&](size_t row) {
      return formatted("{}: row {} (line {})", file_.path().string(), row, range.first_line + rows[row].line);
    });
  }

  [[nodiscard]] const std::vector<Column>& columns() const override { return sets_.chosen(); }
  [[nodiscard]] std::span<const std::vector<Column>> column_sets() const override { return sets_.all(); }
  void prefer(std::span<const Column> wanted) override { sets_.prefer(wanted); }

  std::vector<Unit> select(std::span<const std::string> columns, ReadAs as) override {
    selected_.clear();
    as_ = as;
    if (ranges_.empty()) return {};
    const ColumnNumbers numbers(sets_.chosen(), file_.path().string());
    for (const std::string& name : columns) selected_.push_back(numbers.at(name));
    std::vector<Unit> units;
    for (const JsonRange& range : ranges_)
      units.push_back({range.rows,
                       range.end - range.start + static_cast<int64_t>(sizeof(JsonRow)) * range.rows,
                       static_cast<int32_t>(units.size()), range.longest});
    return units;
  }

  std::unique_ptr<Block> load(size_t unit) override {
    const JsonRange& range = ranges_[unit];
    return load(range.start, range.end, range.rows, range.first_line, range.first_row);
  }

  RowPart load_row(int64_t row) override {
    const auto [from, to] = marks_.around(row, ranges_.back().end);
    const int64_t rows = to.row - from.row;
    return {load(from.start, to.start, rows, from.line, from.row), from.row, rows};
  }
  [[nodiscard]] RowCost row_cost() const override { return file_.row_cost(longest_); }
  [[nodiscard]] bool reads_from_start() const override { return file_.packed(); }
  [[nodiscard]] int64_t index_bytes() const override { return file_.kept_bytes(); }

 private:
  std::unique_ptr<Block> load(int64_t start, int64_t end, int64_t expected, int64_t first_line,
                              int64_t first_row) {
    std::string text = file_.text(start, end);
    std::vector<JsonRow> rows = rows_of(text, expected);
    return std::make_unique<JsonBlock>(
        selected_, as_, most_values(), std::move(text), std::move(rows),
        JsonBlock::Place{file_.path().string(), RowName::number, first_line, first_row});
  }

  [[nodiscard]] std::vector<JsonRow> rows_of(std::string_view text, int64_t expected) const {
    std::vector<JsonRow> rows;
    rows.reserve(static_cast<size_t>(expected));
    JsonListScanner scanner(file_.path().string(), [&](const JsonListScanner::Found& row) {
      rows.push_back({static_cast<uint32_t>(row.start), static_cast<uint32_t>(row.end - row.start),
                      static_cast<uint32_t>(row.line - 1)});
    });
    scanner.start_within_list();
    scanner.feed(text);
    check_internal(static_cast<int64_t>(rows.size()) == expected, "the rows of a unit are not those counted");
    return rows;
  }

  ScannedFile file_;
  std::vector<JsonRange> ranges_;
  RowMarks marks_;
  int64_t longest_ = 0;
  ColumnSets sets_;
  std::vector<Column> selected_;
  ReadAs as_ = ReadAs::kind;
};

// Returns true if the file's text, blanks at its ends aside, stands on one line.
bool is_one_line(ScannedFile& file) {
  if (file.size() > kMaxRowBytes) return false;
  const std::string text = file.text(0, file.size());
  const size_t end = text.find_last_not_of(" \t\r\n");
  return end != std::string::npos && text.find('\n', text.find_first_not_of(" \t\r\n")) > end;
}

// A file that is an object that is one row itself: its list, whose first item is `turn`, holds the turns of a
// conversation.
bool is_one_conversation(ScannedFile& file, const JsonListScanner::Found& turn) {
  constexpr int64_t kLongest = 4 * kUnitBytes;  // nobody talks for so long
  if (file.size() > kLongest) return false;
  const auto has = [](const nlohmann::json& object, const char* a, const char* b) {
    return object.contains(a) && object.contains(b);
  };
  const std::string path = file.path().string();
  const nlohmann::json first = parse_json(file.text(turn.start, turn.end), path);
  if (!has(first, "from", "value") && !has(first, "role", "content")) return false;
  const nlohmann::json root = parse_json(file.text(0, file.size()), path);
  return root.contains("messages") || root.contains("conversations");
}

}  // namespace

std::unique_ptr<DataFile> open_json(const std::filesystem::path& path, RowErrors on_error,
                                    int64_t most_rows) {
  ScannedFile file(path);
  std::vector<JsonRange> ranges;
  RowMarks marks;
  int64_t rows = 0;
  std::optional<JsonListScanner::Found> first;
  JsonListScanner scanner(path.string(), [&](const JsonListScanner::Found& row) {
    if (!first) first = row;
    if (ranges.empty() || row.end - ranges.back().start > kUnitBytes)
      ranges.push_back({row.start, row.end, row.line, rows});
    ranges.back().end = row.end;
    ranges.back().longest = std::max(ranges.back().longest, row.end - row.start);
    ++ranges.back().rows;
    marks.add(row.start, row.line);
    ++rows;
  });
  bool lines = false;
  const bool whole = file.scan([&](std::string_view piece) {
    lines = !scanner.feed(piece);
    return !lines && rows < most_rows;
  });
  if (lines) return open_jsonl(path, on_error, most_rows);
  if (!whole)
    return std::make_unique<JsonFile>(std::move(file), std::move(ranges), std::move(marks), on_error);
  const JsonListScanner::Kind kind = scanner.finish();
  if (first && scanner.is_within_object() && is_one_conversation(file, *first)) {
    ranges = {{.start = 0, .end = file.size(), .rows = 1, .longest = file.size()}};
    marks = {};
    marks.add(0, 1);
  }
  if (kind == JsonListScanner::Kind::list || file.size() == 0)
    return std::make_unique<JsonFile>(std::move(file), std::move(ranges), std::move(marks), on_error);
  if (is_one_line(file)) return open_jsonl(path, on_error, most_rows);
  throw DamagedError(
      path.string() +
      ": holds no list of objects. Rows are a list [{...}, ...], such a list within an object, or "
      "one object a line.");
}

}  // namespace plimsoll
