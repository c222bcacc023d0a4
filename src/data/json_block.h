// Rows that are JSON objects within a text, as files of JSON Lines and JSON lists have them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/data_file.h"

namespace plimsoll {

struct JsonRow {
  uint32_t start = 0;  // within the text
  uint32_t length = 0;
  uint32_t line = 0;  // counted from the text's first
};

// How messages call a row: by its line in the file, or by its number, as a list may stand on one line.
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
  JsonBlock(std::span<const Column> columns, ReadAs as, std::string text, std::vector<JsonRow> rows,
            Place place)
      : columns_(columns),
        as_(as),
        text_(std::move(text)),
        rows_(std::move(rows)),
        place_(std::move(place)) {}

  void read(int64_t row, Row& cells) const override;
  [[nodiscard]] std::string where(int64_t row) const override;

 private:
  [[nodiscard]] std::string_view text_of(int64_t row) const;
  void read_json_cells(int64_t row, Row& cells) const;

  std::span<const Column> columns_;
  ReadAs as_;
  std::string text_;
  std::vector<JsonRow> rows_;
  Place place_;
};

// What a row has: what the first row of a file has decides, rows that differ are errors when they are read.
std::vector<Column> columns_of_row(std::string_view object, const std::string& where);

// A row's text is held in memory twice while it is parsed. No known data set comes near.
inline constexpr int64_t kMaxRowBytes = 64 * kMiB;

}  // namespace plimsoll
