// Rows of a Parquet file as Arrow has decoded them, and the Arrow types that count as text or token ids.
#pragma once

#include <arrow/api.h>
#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/data_file.h"

namespace plimsoll {

ColumnKind parquet_column_kind(const arrow::DataType& type);

// A row has more values of JSON than are allowed.
struct TooManyValues {};

// A value of any type that JSON has a form for; fields of a struct that are null are left out. Counts
// `values` down for each value in it, and throws TooManyValues below 0.
nlohmann::ordered_json arrow_to_json(const arrow::Array& array, int64_t row, int64_t& values);
// The type within `type` that JSON has no form for, or "".
std::string type_without_json(const arrow::DataType& type);

struct SelectedColumn {
  Column column;
  std::vector<int> leaves;  // its columns in the file's own, flattened numbering: one unless read as JSON
  int64_t value_bytes = 0;  // of one list element; 0 for text and JSON
  ReadAs as = ReadAs::kind;
};

class ParquetBlock final : public Block {
 public:
  // `path` and `columns` outlive the block. `first_row` is its first row's number in the file.
  ParquetBlock(const std::string& path, std::span<const SelectedColumn> columns, int64_t first_row,
               int64_t most_values)
      : path_(path), columns_(columns), first_row_(first_row), most_values_(most_values) {}

  // Batches hold the selected columns in the file's order.
  void add(std::shared_ptr<arrow::RecordBatch> batch);
  [[nodiscard]] int64_t rows() const { return ends_.empty() ? 0 : ends_.back(); }

  void read(int64_t row, Row& cells) const override;
  [[nodiscard]] std::string where(int64_t row) const override;

 private:
  void read_text(std::string_view value, size_t column, int64_t row, std::string& text) const;
  void check_texts(const nlohmann::ordered_json& value, size_t column, int64_t row) const;
  void read_ids(const arrow::Array& array, int64_t local, size_t column, int64_t row,
                std::vector<int32_t>& ids) const;

  const std::string& path_;
  std::span<const SelectedColumn> columns_;
  int64_t first_row_;
  int64_t most_values_;
  std::vector<int> positions_;  // of the selected columns in the batches
  std::vector<int64_t> ends_;   // row after each batch
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
};

}  // namespace plimsoll
