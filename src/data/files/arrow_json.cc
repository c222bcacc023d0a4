// Arrow values as JSON.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/files/parquet_block.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;

ordered_json list_to_json(const arrow::Array& items_of, int64_t start, int64_t length, int64_t& values) {
  ordered_json items = ordered_json::array();
  for (int64_t i = start; i < start + length; ++i) items.push_back(arrow_to_json(items_of, i, values));
  return items;
}

template <class List>
ordered_json list_at(const arrow::Array& array, int64_t row, int64_t& values) {
  const auto& list = static_cast<const List&>(array);
  return list_to_json(*list.values(), list.value_offset(row), list.value_length(row), values);
}

ordered_json struct_to_json(const arrow::StructArray& array, int64_t row, int64_t& values) {
  ordered_json object = ordered_json::object();
  for (int i = 0; i < array.num_fields(); ++i) {
    ordered_json value = arrow_to_json(*array.field(i), row, values);
    // A table knows no absent fields: the writers of these files make null of them.
    if (!value.is_null()) object[array.struct_type()->field(i)->name()] = std::move(value);
  }
  return object;
}

template <class Array>
ordered_json value_at(const arrow::Array& array, int64_t row) {
  return static_cast<const Array&>(array).Value(row);
}

}  // namespace

std::string type_without_json(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
      return "";
    case arrow::Type::DICTIONARY:
      return type_without_json(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case arrow::Type::STRUCT:
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      for (const auto& field : type.fields())
        if (std::string unknown = type_without_json(*field->type()); !unknown.empty()) return unknown;
      return "";
    default:
      return arrow::is_integer(type.id()) ? "" : type.ToString();
  }
}

ordered_json arrow_to_json(const arrow::Array& array, int64_t row, int64_t& values) {
  if (--values < 0) throw TooManyValues();
  if (array.IsNull(row)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::NA:
      return nullptr;
    case arrow::Type::BOOL:
      return value_at<arrow::BooleanArray>(array, row);
    case arrow::Type::STRING:
      return std::string(static_cast<const arrow::StringArray&>(array).GetView(row));
    case arrow::Type::LARGE_STRING:
      return std::string(static_cast<const arrow::LargeStringArray&>(array).GetView(row));
    case arrow::Type::FLOAT:
      return value_at<arrow::FloatArray>(array, row);
    case arrow::Type::DOUBLE:
      return value_at<arrow::DoubleArray>(array, row);
    case arrow::Type::INT8:
      return value_at<arrow::Int8Array>(array, row);
    case arrow::Type::INT16:
      return value_at<arrow::Int16Array>(array, row);
    case arrow::Type::INT32:
      return value_at<arrow::Int32Array>(array, row);
    case arrow::Type::INT64:
      return value_at<arrow::Int64Array>(array, row);
    case arrow::Type::UINT8:
      return value_at<arrow::UInt8Array>(array, row);
    case arrow::Type::UINT16:
      return value_at<arrow::UInt16Array>(array, row);
    case arrow::Type::UINT32:
      return value_at<arrow::UInt32Array>(array, row);
    case arrow::Type::UINT64:
      return value_at<arrow::UInt64Array>(array, row);
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return arrow_to_json(*dictionary.dictionary(), dictionary.GetValueIndex(row), values);
    }
    case arrow::Type::STRUCT:
      return struct_to_json(static_cast<const arrow::StructArray&>(array), row, values);
    case arrow::Type::LIST:
      return list_at<arrow::ListArray>(array, row, values);
    case arrow::Type::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, row, values);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, row, values);
    default:
      throw InternalError("arrow_to_json: " + array.type()->ToString());
  }
}

}  // namespace plimsoll
