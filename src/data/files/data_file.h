// The interface of all file formats: a file of rows, read in units of about a MiB, so that memory is bounded
// whatever the file's own structure is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/format.h"
#include "base/units.h"
#include "tasks/rows.h"

namespace plimsoll {

// `plain`: null, a number, true or false in JSON, which no text or list is read from.
enum class ColumnKind : uint8_t { text, ids, plain, other };

struct Column {
  std::string name;
  ColumnKind kind = ColumnKind::other;
  std::string type;  // as the file calls it, for messages
};

struct Cell;  // data/files/cell.h
using Row = std::vector<Cell>;
// The place of a row, which error messages begin with.
using Where = std::function<std::string()>;

// Values of JSON in the columns that a row is read with. A conversation of 300,000 messages has as many.
inline constexpr int64_t kMostRowValues = 1'000'000;

// The form in which values are read: texts and lists of integers by their columns' kind, or anything at all
// as JSON (a struct's fields that are null are left out, a column that a JSON line lacks is null).
enum class ReadAs : uint8_t { kind, json };

// Consecutive rows of one file that are read and dropped together.
struct Unit {
  int64_t rows = 0;
  int64_t bytes = 0;    // memory it takes once loaded; for Parquet an estimate from the file's metadata
  int32_t group = 0;    // units of one group must be read in order to be cheap (a Parquet row group)
  int64_t longest = 0;  // bytes of its longest row in the file; 0: not known without reading it
};

// The cost of reading one row by itself: memory while it is read, and about how long.
struct RowCost {
  int64_t bytes = 0;
  double seconds = 0;
};

// Large enough to read at the disk's speed, small enough that a window of many units shuffles well.
inline constexpr int64_t kUnitBytes = kMiB;

// The rows of a loaded unit, numbered from 0.
class Block {
 public:
  virtual ~Block() = default;
  // Fills one cell per selected column. Throws DamagedError saying where when a value is not what its column
  // promises.
  virtual void read(int64_t row, Row& cells) const = 0;
  // "data/train.jsonl:14": where people find the row.
  [[nodiscard]] virtual std::string where(int64_t row) const = 0;
  // Bytes of the row in the file, where it lies there as text; else 0.
  [[nodiscard]] virtual int64_t text_bytes(int64_t /*row*/) const { return 0; }
};

// The rows that were loaded for the sake of one of them.
struct RowPart {
  std::unique_ptr<Block> block;
  int64_t first_row = 0;  // of the file
  int64_t rows = 0;
};

// The name of a row in messages, for a file without lines.
inline std::string row_name(const std::string& path, int64_t row) {
  return formatted("{}: row {}", path, row);
}

// Columns by their names, the first of each.
class ColumnNumbers {
 public:
  // `columns` outlive it. `where` names the file in errors.
  ColumnNumbers(std::span<const Column> columns, std::string where);
  // Throws UsageError naming those that exist.
  [[nodiscard]] size_t of(const std::string& name) const;
  [[nodiscard]] const Column& at(const std::string& name) const { return columns_[of(name)]; }

 private:
  std::span<const Column> columns_;
  std::string where_;
  std::unordered_map<std::string_view, size_t> numbers_;
};

class DataFile {
 public:
  virtual ~DataFile() = default;
  [[nodiscard]] virtual const std::vector<Column>& columns() const = 0;
  // The sets of columns that it may have, likeliest first: JSON's rows may differ, and its sets are those of
  // the first rows.
  [[nodiscard]] virtual std::span<const std::vector<Column>> column_sets() const {
    return std::span(&columns(), 1);
  }
  // Makes the first of them that has all these columns, of these kinds, the file's columns.
  virtual void prefer(std::span<const Column> /*wanted*/) {}
  // Chooses the columns that rows are read with, and cuts the file into units.
  virtual std::vector<Unit> select(std::span<const std::string> columns, ReadAs as) = 0;
  // Loads one of the units that select() returned.
  virtual std::unique_ptr<Block> load(size_t unit) = 0;
  // Loads as few rows as can be read with this one, counted through the file.
  virtual RowPart load_row(int64_t row) = 0;
  // The cost of load_row(): bytes of the largest row, seconds of an ordinary one.
  [[nodiscard]] virtual RowCost row_cost() const = 0;
  // Returns true if reading a unit means reading all before it, unless that was read last.
  [[nodiscard]] virtual bool reads_from_start() const { return false; }
  // Most bytes that the values of all rows take in a row store (row_store.h), where they are known without
  // reading the rows.
  [[nodiscard]] virtual std::optional<int64_t> stored_bytes() const { return std::nullopt; }
  // Memory that reading and keeping the file's own index takes, such as the footer of Parquet, or unpacking
  // it; 0: none.
  [[nodiscard]] virtual int64_t index_bytes() const { return 0; }
  // Units that are loaded from here on refuse rows with more values of JSON.
  void limit_values(int64_t most) { most_values_ = most; }

 protected:
  [[nodiscard]] int64_t most_values() const { return most_values_; }

 private:
  int64_t most_values_ = kMostRowValues;
};

class CappedMemoryPool;

// As many rows as a file has. Who wants fewer of a text's is given at least so many, and what is behind them
// is not read: where the file has more, its last rows are missing.
inline constexpr int64_t kAllRows = INT64_MAX;

// All throw UsageError or DamagedError when the file cannot be read. `pool` outlives the file.
std::unique_ptr<DataFile> open_parquet(const std::filesystem::path& path, CappedMemoryPool& pool);
// Arrow's IPC formats, file (also called Feather) and stream.
std::unique_ptr<DataFile> open_arrow(const std::filesystem::path& path, CappedMemoryPool& pool);
// The columns are those of the first row, with `skip` of the first one that can be read, until others of the
// first rows are preferred.
std::unique_ptr<DataFile> open_jsonl(const std::filesystem::path& path, RowErrors on_error,
                                     int64_t most_rows = kAllRows);
// A list of objects; what holds one object after another is read as JSON Lines.
std::unique_ptr<DataFile> open_json(const std::filesystem::path& path, RowErrors on_error,
                                    int64_t most_rows = kAllRows);
// The format of tab-separated texts. (Comma-separated ones are as in RFC 4180.)
struct TabText {
  bool quotes = true;                    // as in RFC 4180; false: a quote is a character like others
  std::vector<std::string> header = {};  // the columns of a file whose first line names none of them
};
// Comma- or tab-separated texts under a header.
std::unique_ptr<DataFile> open_csv(const std::filesystem::path& path, char separator,
                                   const TabText& text = {}, int64_t most_rows = kAllRows);

// The column called `name`; throws UsageError that lists the columns there are.
const Column& find_column(std::span<const Column> columns, const std::string& name, const std::string& where);

}  // namespace plimsoll
