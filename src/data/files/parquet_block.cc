#include "data/files/parquet_block.h"

#include <arrow/util/utf8.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

bool is_text(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY)
    return is_text(*static_cast<const arrow::DictionaryType&>(type).value_type());
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
}

bool is_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST ||
         type.id() == arrow::Type::FIXED_SIZE_LIST;
}

std::string_view text_at(const arrow::Array& array, int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return static_cast<const arrow::StringArray&>(array).GetView(row);
    case arrow::Type::LARGE_STRING:
      return static_cast<const arrow::LargeStringArray&>(array).GetView(row);
    default: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return text_at(*dictionary.dictionary(), dictionary.GetValueIndex(row));
    }
  }
}

int64_t integer_at(const arrow::Array& array, int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::INT8:
      return static_cast<const arrow::Int8Array&>(array).Value(row);
    case arrow::Type::INT16:
      return static_cast<const arrow::Int16Array&>(array).Value(row);
    case arrow::Type::INT32:
      return static_cast<const arrow::Int32Array&>(array).Value(row);
    case arrow::Type::INT64:
      return static_cast<const arrow::Int64Array&>(array).Value(row);
    case arrow::Type::UINT8:
      return static_cast<const arrow::UInt8Array&>(array).Value(row);
    case arrow::Type::UINT16:
      return static_cast<const arrow::UInt16Array&>(array).Value(row);
    case arrow::Type::UINT32:
      return static_cast<const arrow::UInt32Array&>(array).Value(row);
    default: {
      const uint64_t value = static_cast<const arrow::UInt64Array&>(array).Value(row);
      return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
    }
  }
}

// The integers of a list's row are [start, start + length) of `values`.
struct ListSlice {
  const arrow::Array& values;
  int64_t start;
  int64_t length;
};

ListSlice slice_at(const arrow::Array& array, int64_t row) {
  switch (array.type_id()) {
    case arrow::Type::LIST: {
      const auto& list = static_cast<const arrow::ListArray&>(array);
      return {*list.values(), list.value_offset(row), list.value_length(row)};
    }
    case arrow::Type::LARGE_LIST: {
      const auto& list = static_cast<const arrow::LargeListArray&>(array);
      return {*list.values(), list.value_offset(row), list.value_length(row)};
    }
    default: {
      const auto& list = static_cast<const arrow::FixedSizeListArray&>(array);
      return {*list.values(), list.value_offset(row), list.value_length(row)};
    }
  }
}

}  // namespace

ColumnKind parquet_column_kind(const arrow::DataType& type) {
  if (is_text(type)) return ColumnKind::text;
  const bool ids = is_list(type) && arrow::is_integer(type.field(0)->type()->id());
  return ids ? ColumnKind::ids : ColumnKind::other;
}

void ParquetBlock::add(std::shared_ptr<arrow::RecordBatch> batch) {
  if (batches_.empty())
    for (const SelectedColumn& selected : columns_)
      positions_.push_back(batch->schema()->GetFieldIndex(selected.column.name));
  ends_.push_back(rows() + batch->num_rows());
  batches_.push_back(std::move(batch));
}

void ParquetBlock::read(int64_t row, Row& cells) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), row);
  const auto index = static_cast<size_t>(end - ends_.begin());
  const arrow::RecordBatch& batch = *batches_[index];
  const int64_t local = row - (index == 0 ? 0 : ends_[index - 1]);
  cells.resize(columns_.size());
  int64_t values = most_values_;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const arrow::Array& array = *batch.column(positions_[i]);
    if (columns_[i].as == ReadAs::json) {
      try {
        cells[i].json = arrow_to_json(array, local, values);
      } catch (const TooManyValues&) {
        throw DamagedError(formatted("{}: has more than {} values.", where(row), format_count(most_values_)));
      }
      check_texts(cells[i].json, i, row);
      continue;
    }
    if (array.IsNull(local))
      throw DamagedError(formatted("{}: '{}' is null.", where(row), columns_[i].column.name));
    if (columns_[i].column.kind == ColumnKind::text)
      read_text(text_at(array, local), i, row, cells[i].text);
    else
      read_ids(array, local, i, row, cells[i].ids);
  }
}

std::string ParquetBlock::where(int64_t row) const { return row_name(path_, first_row_ + row); }

// Writers promise UTF-8 and not all keep it; a tokenizer relies on it.
void ParquetBlock::read_text(std::string_view value, size_t column, int64_t row, std::string& text) const {
  if (!arrow::util::ValidateUTF8(value))
    throw DamagedError(formatted("{}: '{}' is not valid UTF-8.", where(row), columns_[column].column.name));
  text = value;
}

void ParquetBlock::check_texts(const nlohmann::ordered_json& value, size_t column, int64_t row) const {
  std::string text;
  if (value.is_string()) return read_text(value.get_ref<const std::string&>(), column, row, text);
  if (!value.is_structured()) return;
  for (const auto& item : value) check_texts(item, column, row);
}

void ParquetBlock::read_ids(const arrow::Array& array, int64_t local, size_t column, int64_t row,
                            std::vector<int32_t>& ids) const {
  const ListSlice slice = slice_at(array, local);
  ids.clear();
  for (int64_t i = slice.start; i < slice.start + slice.length; ++i) {
    const int64_t id =
        slice.values.IsNull(i) ? std::numeric_limits<int64_t>::max() : integer_at(slice.values, i);
    if (id < std::numeric_limits<int32_t>::min() || id > std::numeric_limits<int32_t>::max())
      throw DamagedError(
          formatted("{}: '{}' holds a value that is no token id.", where(row), columns_[column].column.name));
    ids.push_back(static_cast<int32_t>(id));
  }
}

}  // namespace plimsoll
