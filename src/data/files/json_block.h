// Parses rows that are JSON objects within a text, as files of JSON Lines and JSON lists have them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/data_file.h"

namespace plimsoll {

struct JsonRow {
  uint32_t start = 0;  // within the text
  uint32_t length = 0;
  uint32_t line = 0;  // counted from the text's first
};

// The name of a row in messages: by its line in the file, or by its number, as a list may stand on one line.
enum class RowName : uint8_t { line, number };

class JsonBlock final : public Block {
 public:
  struct Place {
    std::string path;
    RowName name = RowName::line;
    int64_t first_line = 1;
    int64_t first_row = 0;
  };

  // `columns` outlive the block.
  JsonBlock(std::span<const Column> columns, ReadAs as, int64_t most_values, std::string text,
            std::vector<JsonRow> rows, Place place)
      : columns_(columns),
        as_(as),
        most_values_(most_values),
        text_(std::move(text)),
        rows_(std::move(rows)),
        place_(std::move(place)) {}

  void read(int64_t row, Row& cells) const override;
  [[nodiscard]] std::string where(int64_t row) const override;
  [[nodiscard]] int64_t text_bytes(int64_t row) const override {
    return rows_[static_cast<size_t>(row)].length;
  }

 private:
  [[nodiscard]] std::string_view text_of(int64_t row) const;
  void read_json_cells(int64_t row, Row& cells) const;

  std::span<const Column> columns_;
  ReadAs as_;
  int64_t most_values_;
  std::string text_;
  std::vector<JsonRow> rows_;
  Place place_;
};

// The columns of a file's first rows, each set of columns once. That of the first row decides unless another
// one is preferred; rows that differ are errors when they are read.
class ColumnSets {
 public:
  // `where` names a row by its number here. Throws DamagedError where the first row is not an object, with
  // `skip` where no row is one.
  void read(std::string_view text, std::span<const JsonRow> rows, RowErrors on_error,
            const std::function<std::string(size_t row)>& where);
  [[nodiscard]] std::span<const std::vector<Column>> all() const { return sets_; }
  [[nodiscard]] const std::vector<Column>& chosen() const { return sets_.empty() ? none_ : sets_[chosen_]; }
  void prefer(std::span<const Column> wanted);

 private:
  void add(std::vector<Column> columns);

  std::vector<std::vector<Column>> sets_;
  std::vector<Column> none_;
  size_t chosen_ = 0;
};

// The longest text of a row; no known data set comes near.
inline constexpr int64_t kMaxRowBytes = 64 * kMiB;

}  // namespace plimsoll
