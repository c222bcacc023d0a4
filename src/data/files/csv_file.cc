// CSV under a header, quoted as in RFC 4180. Arrow's reader is not used: it reads ahead in threads of its own
// and forgets lines, and cutting the file into units needs the grammar here anyway.
#include <arrow/util/utf8.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "data/files/cell.h"
#include "data/files/json_block.h"
#include "data/files/scanned_file.h"

namespace plimsoll {
namespace {

std::string line_name(const std::string& path, int64_t line) { return formatted("{}:{}", path, line); }

// A record without its line end.
struct Record {
  int64_t start = 0;
  int64_t end = 0;
  int64_t line = 0;  // from 1
};

// Cuts a text into records; a line end within quotes is part of its field. Empty lines are no records.
class RecordScanner {
 public:
  RecordScanner(std::string path, char separator, char line_end, bool quotes)
      : path_(std::move(path)), separator_(separator), line_end_(line_end), quotes_(quotes) {}

  template <class OnRecord>
  void feed(std::string_view chunk, OnRecord on_record) {
    for (const char c : chunk) {
      if (quoted_) {
        // A doubled quote closes and opens again.
        if (c == '"') quoted_ = false, after_quote_ = true;
        if (c == line_end_) ++line_;
      } else if (c == '"' && quotes_ && (field_start_ || after_quote_)) {
        quoted_ = true;
        field_start_ = after_quote_ = false;
      } else if (c == line_end_) {
        end_record(on_record);
        ++line_;
        record_ = {offset_ + 1, 0, line_};
        field_start_ = true;
        after_quote_ = after_return_ = false;
      } else {
        field_start_ = c == separator_;
        after_quote_ = false;
        after_return_ = c == '\r';
      }
      ++offset_;
      if (offset_ - record_.start > kMaxRowBytes)
        throw DamagedError(formatted("{}: the row is longer than {}. Is a quote left open?",
                                     line_name(path_, record_.line), format_bytes(kMaxRowBytes)));
    }
  }

  template <class OnRecord>
  void finish(OnRecord on_record) {
    if (quoted_) throw DamagedError(line_name(path_, record_.line) + ": a quote is opened and never closed.");
    end_record(on_record);
  }

 private:
  template <class OnRecord>
  void end_record(OnRecord on_record) {
    record_.end = offset_ - (after_return_ ? 1 : 0);
    if (record_.end > record_.start) on_record(record_);
  }

  std::string path_;
  char separator_;
  char line_end_;
  bool quotes_;
  Record record_{0, 0, 1};
  int64_t offset_ = 0;
  int64_t line_ = 1;
  bool quoted_ = false;
  bool field_start_ = true;
  bool after_quote_ = false;
  bool after_return_ = false;
};

// The fields of a record, quotes removed. Throws DamagedError that starts with `where`.
void split(std::string_view record, char separator, bool quotes, const std::string& where,
           std::vector<std::string>& fields) {
  fields.clear();
  for (size_t i = 0;; ++i) {
    std::string& field = fields.emplace_back();
    if (quotes && i < record.size() && record[i] == '"') {
      for (++i; i < record.size(); ++i) {
        if (record[i] != '"')
          field += record[i];
        else if (i + 1 < record.size() && record[i + 1] == '"')
          field += record[i++];
        else
          break;
      }
      ++i;
      if (i < record.size() && record[i] != separator)
        throw DamagedError(where + ": a quoted field continues after its closing quote.");
    } else {
      const size_t end = std::min(record.find(separator, i), record.size());
      field = record.substr(i, end - i);
      i = end;
    }
    if (i >= record.size()) return;
  }
}

// Spreadsheets of countries that write 1,5 separate by semicolons, others by tabs, and call it .csv.
char separator_of(std::string_view header) {
  for (const char separator : {',', ';', '\t'})
    if (header.find(separator) != std::string_view::npos) return separator;
  return ',';
}

// '\n', or '\r' where lines end with it alone, as spreadsheets for the Mac write them.
char line_end_of(std::string_view start, bool quotes) {
  bool quoted = false, returns = false;
  for (const char c : start) {
    if (c == '"' && quotes) quoted = !quoted;
    if (c == '\n' && !quoted) return '\n';
    returns = returns || (c == '\r' && !quoted);
  }
  return returns ? '\r' : '\n';
}

struct Header {
  std::string path;
  char separator = ',';
  char line_end = '\n';
  TabText text;
  std::vector<Column> columns;
};

class CsvBlock final : public Block {
 public:
  // `header` and `selected`, numbers of its columns, outlive the block.
  CsvBlock(const Header& header, std::span<const size_t> selected, ReadAs as, std::string text,
           std::vector<Record> records, int64_t first_line)
      : header_(header),
        selected_(selected),
        as_(as),
        text_(std::move(text)),
        records_(std::move(records)),
        first_line_(first_line) {}

  void read(int64_t row, Row& cells) const override {
    const Record& record = records_[static_cast<size_t>(row)];
    const std::string here = where(row);
    std::vector<std::string> fields;
    split(std::string_view(text_).substr(static_cast<size_t>(record.start),
                                         static_cast<size_t>(record.end - record.start)),
          header_.separator, header_.text.quotes, here, fields);
    if (fields.size() != header_.columns.size())
      throw DamagedError(
          formatted("{}: has {} fields, the header names {}.", here, fields.size(), header_.columns.size()));
    cells.resize(selected_.size());
    for (size_t i = 0; i < selected_.size(); ++i) {
      std::string& field = fields[selected_[i]];
      if (!arrow::util::ValidateUTF8(field))
        throw DamagedError(formatted(
            "{}: '{}' is not valid UTF-8: iconv -f LATIN1 -t UTF-8 FILE > NEW makes it so, where it is "
            "Latin-1.",
            here, header_.columns[selected_[i]].name));
      if (as_ == ReadAs::json)
        cells[i].json = std::move(field);
      else
        cells[i].text = std::move(field);
    }
  }

  [[nodiscard]] std::string where(int64_t row) const override {
    return line_name(header_.path, first_line_ + records_[static_cast<size_t>(row)].line - 1);
  }

  [[nodiscard]] int64_t text_bytes(int64_t row) const override {
    const Record& record = records_[static_cast<size_t>(row)];
    return record.end - record.start;
  }

 private:
  const Header& header_;
  std::span<const size_t> selected_;
  ReadAs as_;
  std::string text_;
  std::vector<Record> records_;
  int64_t first_line_;
};

class CsvFile final : public DataFile {
 public:
  CsvFile(const std::filesystem::path& path, char separator, const TabText& text, int64_t most_rows)
      : file_(path) {
    arrow::util::InitializeUTF8();
    header_ = {path.string(), separator, '\n', text, {}};
    scan(most_rows);
  }

  [[nodiscard]] const std::vector<Column>& columns() const override { return header_.columns; }

  std::vector<Unit> select(std::span<const std::string> columns, ReadAs as) override {
    selected_.clear();
    as_ = as;
    if (ranges_.empty()) return {};
    const ColumnNumbers numbers(header_.columns, header_.path);
    for (const std::string& name : columns) selected_.push_back(numbers.of(name));
    std::vector<Unit> units;
    for (const LineRange& range : ranges_)
      units.push_back({range.rows,
                       range.end - range.start + static_cast<int64_t>(sizeof(Record)) * range.rows,
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
  std::unique_ptr<Block> load(int64_t start, int64_t end, int64_t rows, int64_t first_line) {
    std::string text = file_.text(start, end);
    std::vector<Record> records;
    records.reserve(static_cast<size_t>(rows));
    RecordScanner scanner(header_.path, header_.separator, header_.line_end, header_.text.quotes);
    const auto keep = [&](const Record& record) { records.push_back(record); };
    scanner.feed(text, keep);
    scanner.finish(keep);
    check_internal(static_cast<int64_t>(records.size()) == rows, "the rows of a unit are not those counted");
    return std::make_unique<CsvBlock>(header_, selected_, as_, std::move(text), std::move(records),
                                      first_line);
  }

  void scan(int64_t most_rows) {
    int64_t rows = 0;
    std::optional<RecordScanner> scanner;
    const auto place = [this, &rows](const Record& record) {
      if (header_.columns.empty() && !lacks_header(record)) return read_header(record);
      if (ranges_.empty() || record.end - ranges_.back().start > kUnitBytes)
        ranges_.push_back({record.start, record.end, record.line});
      marks_.add(record.start, record.line);
      longest_ = std::max(longest_, record.end - record.start);
      ranges_.back().end = record.end;
      ranges_.back().longest = std::max(ranges_.back().longest, record.end - record.start);
      ++ranges_.back().rows;
      ++rows;
    };
    const bool whole = file_.scan([&](std::string_view piece) {
      if (!scanner) {
        header_.line_end = line_end_of(piece, header_.text.quotes);
        if (header_.separator == ',')
          header_.separator = separator_of(piece.substr(0, piece.find(header_.line_end)));
        scanner.emplace(header_.path, header_.separator, header_.line_end, header_.text.quotes);
      }
      scanner->feed(piece, place);
      return rows < most_rows;
    });
    if (scanner && whole) scanner->finish(place);
  }

  // Returns true if the first record is a row of columns that have their names from elsewhere.
  bool lacks_header(const Record& record) {
    const std::vector<std::string>& header = header_.text.header;
    const std::vector<std::string> first = names_in(record);
    const auto names = [&](const std::string& field) {
      return std::find(header.begin(), header.end(), field) != header.end();
    };
    if (header.size() != first.size() || std::any_of(first.begin(), first.end(), names)) return false;
    for (const std::string& name : header) header_.columns.push_back({name, ColumnKind::text, "text"});
    return true;
  }

  std::vector<std::string> names_in(const Record& record) {
    const std::string text = file_.text(record.start, record.end);
    std::vector<std::string> names;
    const std::string_view mark = "\xEF\xBB\xBF";
    split(text.starts_with(mark) ? std::string_view(text).substr(mark.size()) : std::string_view(text),
          header_.separator, header_.text.quotes, line_name(header_.path, record.line), names);
    return names;
  }

  void read_header(const Record& record) {
    const std::string here = line_name(header_.path, record.line);
    const std::vector<std::string> names = names_in(record);
    std::set<std::string_view> seen;
    for (const std::string& name : names) {
      if (!arrow::util::ValidateUTF8(name)) throw DamagedError(here + ": the header is not valid UTF-8.");
      if (!seen.insert(name).second)
        throw DamagedError(formatted("{}: the header names '{}' twice.", here, name));
      header_.columns.push_back({name, ColumnKind::text, "text"});
    }
  }

  ScannedFile file_;
  Header header_;
  std::vector<LineRange> ranges_;
  RowMarks marks_;
  int64_t longest_ = 0;
  std::vector<size_t> selected_;
  ReadAs as_ = ReadAs::kind;
};

}  // namespace

std::unique_ptr<DataFile> open_csv(const std::filesystem::path& path, char separator, const TabText& text,
                                   int64_t most_rows) {
  return std::make_unique<CsvFile>(path, separator, text, most_rows);
}

}  // namespace plimsoll
