#include "layout/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll::layout {
namespace {

// All sizes together; far beyond any machine, and leaves room for rounding every one of them up.
constexpr int64_t kMaxTotalBytes = int64_t{1} << 56;

enum Column : size_t { kId, kLower, kUpper, kSize, kNumColumns };
constexpr std::array<std::string_view, kNumColumns> kColumnNames = {"id", "lower", "upper", "size"};

// Where a reader is, for its messages.
struct Position {
  std::string_view source;
  size_t line = 0;
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(std::string(source) + ", line " + std::to_string(line) + ": " + what);
  }
};

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells = split(line, ',');
  for (std::string& cell : cells) cell = std::string(trim(cell));
  return cells;
}

// For each cell of a row, which column it is.
std::vector<Column> parse_header(std::string_view line, const Position& at) {
  std::vector<Column> columns;
  for (const std::string& name : cells_of(line)) {
    const auto known = std::ranges::find(kColumnNames, name);
    if (known == kColumnNames.end()) {
      at.fail("unknown column \"" + name + "\"; the first line must read id,lower,upper,size");
    }
    const auto column = static_cast<Column>(known - kColumnNames.begin());
    if (std::ranges::count(columns, column) > 0) at.fail("column \"" + name + "\" stands twice");
    columns.push_back(column);
  }
  if (columns.size() != kNumColumns)
    at.fail("a column is missing; the first line must read id,lower,upper,size");
  return columns;
}

// A decimal number in 0..largest.
int64_t parse_number(const std::string& text, std::string_view column, int64_t largest, const Position& at) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > largest) {
    at.fail(std::string(column) + " is \"" + text + "\", not a whole number from 0 to " +
            std::to_string(largest));
  }
  return value;
}

Buffer parse_row(std::string_view line, const std::vector<Column>& columns, const Position& at) {
  const std::vector<std::string> cells = cells_of(line);
  if (cells.size() != columns.size()) {
    at.fail(std::to_string(cells.size()) + " cells where the header has " + std::to_string(columns.size()));
  }
  constexpr int64_t kMaxOp = std::numeric_limits<int32_t>::max();
  std::array<std::string, kNumColumns> row;
  for (size_t i = 0; i < cells.size(); ++i) row[columns[i]] = cells[i];
  if (row[kId].empty()) at.fail("the id is empty");
  const int64_t lower = parse_number(row[kLower], "lower", kMaxOp, at);
  const int64_t upper = parse_number(row[kUpper], "upper", kMaxOp, at);
  if (upper <= lower) at.fail("upper is exclusive and must be above lower");
  return {row[kId], parse_number(row[kSize], "size", kMaxTotalBytes, at), static_cast<int32_t>(lower),
          static_cast<int32_t>(upper - 1)};
}

std::string row_of(const Buffer& buffer) {
  if (buffer.name.empty() || buffer.name.find_first_of(",\"\r\n") != std::string::npos) {
    throw UsageError("buffer \"" + buffer.name +
                     "\": the CSV form holds no empty id and none with a comma, quote or " +
                     "line break; rename it");
  }
  if (buffer.last == std::numeric_limits<int32_t>::max()) {
    throw UsageError("buffer " + buffer.name +
                     ": its last op has no successor to stand as the exclusive end");
  }
  return buffer.name + "," + std::to_string(buffer.first) + "," + std::to_string(buffer.last + 1) + "," +
         std::to_string(buffer.bytes) + "\n";
}

}  // namespace

Problem parse_csv(std::string_view text, std::string_view source, int64_t alignment) {
  Problem problem{.buffers = {}, .alignment = alignment};
  Position at{source};
  std::vector<Column> columns;
  int64_t room = kMaxTotalBytes;
  for (const std::string& line : split(text, '\n')) {
    ++at.line;
    if (trim(line).empty()) continue;
    if (columns.empty()) {
      columns = parse_header(line, at);
    } else {
      Buffer buffer = parse_row(line, columns, at);
      if (buffer.bytes > room)
        at.fail("the sizes up to here exceed " + format_bytes(kMaxTotalBytes) + " together");
      room -= buffer.bytes;
      problem.buffers.push_back(std::move(buffer));
    }
  }
  if (columns.empty()) at.fail("the file is empty; the first line must read id,lower,upper,size");
  return problem;
}

Problem read_csv(const std::filesystem::path& path, int64_t alignment) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !text) throw UsageError(path.string() + ": is empty or cannot be read");
  return parse_csv(text.str(), path.string(), alignment);
}

std::string print_csv(const Problem& problem) {
  std::string text = "id,lower,upper,size\n";
  for (const Buffer& buffer : problem.buffers) text += row_of(buffer);
  return text;
}

void write_csv(const std::filesystem::path& path, const Problem& problem) {
  std::ofstream file(path, std::ios::binary);
  file << print_csv(problem);
  file.close();
  if (!file) throw StoppedError(path.string() + ": cannot be written; is the folder there, and space left?");
}

}  // namespace plimsoll::layout
