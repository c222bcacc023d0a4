// JSON Lines: one object a line. Opening scans the file once for line ends and keeps only where each unit
// starts, about 40 bytes per 4 MiB.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/strings.h"
#include "data/data_file.h"
#include "io/file.h"
#include "io/json.h"

namespace plimsoll {
namespace {

using nlohmann::json;

constexpr int64_t kScanBytes = kMiB;
// A line is held in memory twice while it is parsed. No known data set comes near.
constexpr int64_t kMaxLineBytes = 64 * kMiB;

struct UnitRange {
  int64_t start = 0;
  int64_t end = 0;
  int64_t first_line = 1;
  int64_t rows = 0;
};

std::string line_name(const std::filesystem::path& path, int64_t line) {
  return path.string() + ":" + std::to_string(line);
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Cuts the file into units at line ends. Blank lines are no rows.
class Scanner {
 public:
  explicit Scanner(const std::filesystem::path& path) : path_(path) {}

  void feed(std::string_view chunk) {
    while (!chunk.empty()) {
      const size_t newline = chunk.find('\n');
      const std::string_view part = chunk.substr(0, newline);
      blank_ = blank_ && std::all_of(part.begin(), part.end(), is_blank);
      offset_ += static_cast<int64_t>(part.size());
      if (offset_ - line_start_ > kMaxLineBytes)
        throw DamagedError(line_name(path_, line_) + ": is longer than " + format_bytes(kMaxLineBytes) +
                           ". One JSON object a line is expected.");
      if (newline == std::string_view::npos) return;
      ++offset_;
      end_line();
      chunk.remove_prefix(newline + 1);
    }
  }

  std::vector<UnitRange> finish() {
    end_line();
    end_unit();
    return std::move(units_);
  }

 private:
  void end_line() {
    if (!blank_) ++unit_.rows;
    ++line_;
    line_start_ = offset_;
    blank_ = true;
    if (offset_ - unit_.start >= kUnitBytes) end_unit();
  }

  void end_unit() {
    unit_.end = offset_;
    if (unit_.rows > 0) units_.push_back(unit_);
    unit_ = {.start = offset_, .end = offset_, .first_line = line_, .rows = 0};
  }

  const std::filesystem::path& path_;
  std::vector<UnitRange> units_;
  UnitRange unit_;
  int64_t offset_ = 0;
  int64_t line_ = 1;
  int64_t line_start_ = 0;
  bool blank_ = true;
};

std::vector<UnitRange> scan(const File& file) {
  Scanner scanner(file.path());
  std::string buffer(static_cast<size_t>(kScanBytes), '\0');
  const int64_t bytes = file.size();
  for (int64_t offset = 0; offset < bytes; offset += kScanBytes) {
    const auto count = static_cast<size_t>(std::min(kScanBytes, bytes - offset));
    file.read(offset, std::as_writable_bytes(std::span<char>(buffer)).first(count));
    scanner.feed(std::string_view(buffer).substr(0, count));
  }
  return scanner.finish();
}

ColumnKind kind_of(const json& value) {
  if (value.is_string()) return ColumnKind::text;
  const bool ids = value.is_array() && std::all_of(value.begin(), value.end(),
                                                   [](const json& id) { return id.is_number_integer(); });
  return ids ? ColumnKind::ids : ColumnKind::other;
}

void read_ids(const json& value, const std::string& column, const std::string& where,
              std::vector<int32_t>& ids) {
  ids.clear();
  for (const json& id : value) {
    // Numbers beyond int64 are stored unsigned: they fail the first test.
    const bool fits =
        id.is_number_integer() &&
        !(id.is_number_unsigned() && id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) &&
        id.get<int64_t>() >= std::numeric_limits<int32_t>::min();
    if (!fits)
      throw DamagedError(where + ": '" + column + "' holds " + id.dump() + ", which is no token id.");
    ids.push_back(id.get<int32_t>());
  }
}

class JsonlBlock final : public Block {
 public:
  JsonlBlock(const std::filesystem::path& path, std::span<const Column> columns, ReadAs as, std::string text,
             const UnitRange& unit)
      : path_(path), columns_(columns), as_(as), text_(std::move(text)), first_line_(unit.first_line) {
    lines_.reserve(static_cast<size_t>(unit.rows));
    size_t start = 0;
    for (uint32_t number = 0; start < text_.size(); ++number) {
      const size_t end = std::min(text_.find('\n', start), text_.size());
      const std::string_view line = std::string_view(text_).substr(start, end - start);
      if (!std::all_of(line.begin(), line.end(), is_blank))
        lines_.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(line.size()), number});
      start = end + 1;
    }
    if (static_cast<int64_t>(lines_.size()) != unit.rows)
      throw DamagedError(path.string() + ": changed while it was read.");
  }

  void read(int64_t row, Row& cells) const override {
    const Line& line = lines_[static_cast<size_t>(row)];
    const std::string here = where(row);
    if (as_ == ReadAs::json) return read_json_cells(line, here, cells);
    const json object = parse_json(std::string_view(text_).substr(line.start, line.length), here);
    if (!object.is_object()) throw DamagedError(here + ": is " + describe_kind(object) + ", not an object.");
    cells.resize(columns_.size());
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& column = columns_[i];
      const auto value = object.find(column.name);
      if (value == object.end()) throw DamagedError(here + ": has no '" + column.name + "'.");
      if (column.kind == ColumnKind::text ? !value->is_string() : !value->is_array())
        throw DamagedError(here + ": '" + column.name + "' is " + describe_kind(*value) + ", " +
                           (column.kind == ColumnKind::text ? "a string" : "an array of token ids") +
                           " is expected.");
      if (column.kind == ColumnKind::text)
        cells[i].text = value->get_ref<const std::string&>();
      else
        read_ids(*value, column.name, here, cells[i].ids);
    }
  }

  [[nodiscard]] std::string where(int64_t row) const override {
    return line_name(path_, first_line_ + lines_[static_cast<size_t>(row)].number);
  }

 private:
  struct Line {
    uint32_t start;
    uint32_t length;
    uint32_t number;  // within the unit, blank lines counted
  };

  void read_json_cells(const Line& line, const std::string& here, Row& cells) const {
    nlohmann::ordered_json object =
        parse_ordered_json(std::string_view(text_).substr(line.start, line.length), here);
    if (!object.is_object()) throw DamagedError(here + ": is " + describe_kind(object) + ", not an object.");
    cells.resize(columns_.size());
    for (size_t i = 0; i < columns_.size(); ++i) {
      const auto value = object.find(columns_[i].name);
      cells[i].json = value == object.end() ? nullptr : std::move(*value);
    }
  }

  const std::filesystem::path& path_;
  std::span<const Column> columns_;
  ReadAs as_;
  std::string text_;
  int64_t first_line_;
  std::vector<Line> lines_;
};

class JsonlFile final : public DataFile {
 public:
  explicit JsonlFile(const std::filesystem::path& path) : file_(File::open(path)), ranges_(scan(file_)) {
    if (!ranges_.empty()) columns_ = columns_of_first_line();
  }

  [[nodiscard]] const std::vector<Column>& columns() const override { return columns_; }

  std::vector<Unit> select(std::span<const std::string> columns, ReadAs as) override {
    selected_.clear();
    as_ = as;
    if (ranges_.empty()) return {};
    for (const std::string& name : columns)
      selected_.push_back(find_column(columns_, name, file_.path().string()));
    std::vector<Unit> units;
    for (const UnitRange& range : ranges_)
      // 12 bytes a row: where its line is.
      units.push_back(
          {range.rows, range.end - range.start + 12 * range.rows, static_cast<int32_t>(units.size())});
    return units;
  }

  std::unique_ptr<Block> load(size_t unit) override {
    return std::make_unique<JsonlBlock>(file_.path(), selected_, as_, text_of(ranges_[unit]), ranges_[unit]);
  }

 private:
  [[nodiscard]] std::string text_of(const UnitRange& range) const {
    std::string text(static_cast<size_t>(range.end - range.start), '\0');
    file_.read(range.start, std::as_writable_bytes(std::span<char>(text)));
    return text;
  }

  // What the first row has decides; rows that differ are errors when they are read.
  [[nodiscard]] std::vector<Column> columns_of_first_line() const {
    const std::string text = text_of(ranges_.front());
    std::string_view rest = text;
    int64_t line = 1;
    while (trim(rest.substr(0, rest.find('\n'))).empty()) {
      rest.remove_prefix(rest.find('\n') + 1);
      ++line;
    }
    const std::string here = line_name(file_.path(), line);
    const json first = parse_json(rest.substr(0, rest.find('\n')), here);
    if (!first.is_object()) throw DamagedError(here + ": is " + describe_kind(first) + ", not an object.");
    std::vector<Column> columns;
    for (const auto& [name, value] : first.items())
      columns.push_back({name, kind_of(value), describe_kind(value)});
    return columns;
  }

  File file_;
  std::vector<UnitRange> ranges_;
  std::vector<Column> columns_;
  std::vector<Column> selected_;
  ReadAs as_ = ReadAs::kind;
};

}  // namespace

std::unique_ptr<DataFile> open_jsonl(const std::filesystem::path& path) {
  return std::make_unique<JsonlFile>(path);
}

}  // namespace plimsoll
