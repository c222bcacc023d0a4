// JSON Lines: one object a line. Opening scans the file once for line ends and keeps only where each unit
// starts, about 40 bytes per MiB, and 64 of checksums.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "data/files/json_block.h"
#include "data/files/scanned_file.h"

namespace plimsoll {
namespace {

std::string line_name(const std::filesystem::path& path, int64_t line) {
  return formatted("{}:{}", path.string(), line);
}

bool is_blank_in_line(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Cuts the file into units at line ends. Blank lines are no rows.
class Scanner {
 public:
  explicit Scanner(const std::filesystem::path& path) : path_(path) {}

  void feed(std::string_view chunk) {
    while (!chunk.empty()) {
      const size_t newline = chunk.find('\n');
      const std::string_view part = chunk.substr(0, newline);
      blank_ = blank_ && std::all_of(part.begin(), part.end(), is_blank_in_line);
      offset_ += static_cast<int64_t>(part.size());
      if (offset_ - line_start_ > kMaxRowBytes)
        throw DamagedError(formatted("{}: is longer than {}. One JSON object a line is expected.",
                                     line_name(path_, line_), format_bytes(kMaxRowBytes)));
      if (newline == std::string_view::npos) return;
      ++offset_;
      end_line();
      chunk.remove_prefix(newline + 1);
    }
  }

  [[nodiscard]] int64_t rows() const { return rows_; }

  // Ends the file. If it is not `whole`, the line at its end is no row.
  void finish(bool whole) {
    if (whole)
      end_line();
    else
      offset_ = line_start_;
    end_unit();
  }
  std::vector<LineRange> units;
  RowMarks marks;

 private:
  void end_line() {
    if (!blank_) {
      marks.add(line_start_, line_);
      ++unit_.rows;
      ++rows_;
    }
    unit_.longest = std::max(unit_.longest, offset_ - line_start_);
    ++line_;
    line_start_ = offset_;
    blank_ = true;
    if (offset_ - unit_.start >= kUnitBytes) end_unit();
  }

  void end_unit() {
    unit_.end = offset_;
    if (unit_.rows > 0) units.push_back(unit_);
    unit_ = {.start = offset_, .end = offset_, .first_line = line_};
  }

  const std::filesystem::path& path_;
  LineRange unit_;
  int64_t offset_ = 0;
  int64_t rows_ = 0;
  int64_t line_ = 1;
  int64_t line_start_ = 0;
  bool blank_ = true;
};

Scanner scan(ScannedFile& file, int64_t most_rows) {
  Scanner scanner(file.path());
  const bool whole = file.scan([&](std::string_view piece) {
    scanner.feed(piece);
    return scanner.rows() < most_rows;
  });
  scanner.finish(whole);
  return scanner;
}

// The lines of a unit that are no blank ones.
std::vector<JsonRow> rows_of(const std::string& text, int64_t expected) {
  std::vector<JsonRow> rows;
  rows.reserve(static_cast<size_t>(expected));
  size_t start = 0;
  for (uint32_t number = 0; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    if (!std::all_of(line.begin(), line.end(), is_blank_in_line))
      rows.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(line.size()), number});
    start = end + 1;
  }
  check_internal(static_cast<int64_t>(rows.size()) == expected, "the rows of a unit are not those counted");
  return rows;
}

class JsonlFile final : public DataFile {
 public:
  JsonlFile(const std::filesystem::path& path, RowErrors on_error, int64_t most_rows) : file_(path) {
    Scanner scanner = scan(file_, most_rows);
    ranges_ = std::move(scanner.units);
    marks_ = std::move(scanner.marks);
    for (const LineRange& range : ranges_) longest_ = std::max(longest_, range.longest);
    if (!ranges_.empty()) read_columns(on_error);
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
    for (const LineRange& range : ranges_)
      // 12 bytes a row: where its line is.
      units.push_back({range.rows, range.end - range.start + 12 * range.rows,
                       static_cast<int32_t>(units.size()), range.longest});
    return units;
  }

  std::unique_ptr<Block> load(size_t unit) override {
    const LineRange& range = ranges_[unit];
    return load(range.start, range.end, range.rows, range.first_line);
  }

  RowPart load_row(int64_t row) override {
    const auto [from, to] = marks_.around(row, ranges_.back().end);
    return {load(from.start, to.start, to.row - from.row, from.line), from.row, to.row - from.row};
  }
  [[nodiscard]] RowCost row_cost() const override { return file_.row_cost(longest_); }
  [[nodiscard]] bool reads_from_start() const override { return file_.packed(); }
  [[nodiscard]] int64_t index_bytes() const override { return file_.kept_bytes(); }

 private:
  std::unique_ptr<Block> load(int64_t start, int64_t end, int64_t expected, int64_t first_line) {
    std::string text = file_.text(start, end);
    std::vector<JsonRow> rows = rows_of(text, expected);
    return std::make_unique<JsonBlock>(selected_, as_, most_values(), std::move(text), std::move(rows),
                                       JsonBlock::Place{file_.path().string(), RowName::line, first_line, 0});
  }

  void read_columns(RowErrors on_error) {
    const LineRange& range = ranges_.front();
    const std::string text = file_.text(range.start, range.end);
    const std::vector<JsonRow> rows = rows_of(text, range.rows);
    sets_.read(text, rows, on_error,
               [&](size_t row) { return line_name(file_.path(), range.first_line + rows[row].line); });
  }

  ScannedFile file_;
  std::vector<LineRange> ranges_;
  RowMarks marks_;
  int64_t longest_ = 0;
  ColumnSets sets_;
  std::vector<Column> selected_;
  ReadAs as_ = ReadAs::kind;
};

}  // namespace

std::unique_ptr<DataFile> open_jsonl(const std::filesystem::path& path, RowErrors on_error,
                                     int64_t most_rows) {
  return std::make_unique<JsonlFile>(path, on_error, most_rows);
}

}  // namespace plimsoll
