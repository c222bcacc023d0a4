// Data files for tests, written by Arrow itself or as text.
#pragma once

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "files/test_folder.h"

namespace plimsoll {

inline void must(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

inline std::shared_ptr<arrow::Array> text_column(int64_t rows,
                                                 const std::function<std::string(int64_t)>& text) {
  arrow::StringBuilder builder;
  for (int64_t row = 0; row < rows; ++row) must(builder.Append(text(row)));
  return builder.Finish().ValueOrDie();
}

inline std::shared_ptr<arrow::Array> ids_column(const std::vector<std::vector<int64_t>>& rows) {
  auto values = std::make_shared<arrow::Int64Builder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  for (const std::vector<int64_t>& row : rows) {
    must(builder.Append());
    must(values->AppendValues(row));
  }
  return builder.Finish().ValueOrDie();
}

using NamedColumn = std::pair<std::string, std::shared_ptr<arrow::Array>>;

inline std::filesystem::path write_parquet(const std::filesystem::path& path,
                                           const std::vector<NamedColumn>& columns,
                                           int64_t row_group_rows = 1'000'000) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  const auto table = arrow::Table::Make(arrow::schema(fields), arrays);
  const auto file = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  must(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file, row_group_rows));
  must(file->Close());
  return path;
}

// As gzip packs it, one member.
inline std::string packed_by_gzip(const std::string& text) {
  const auto codec = arrow::util::Codec::Create(arrow::Compression::GZIP).ValueOrDie();
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  std::string packed(static_cast<size_t>(codec->MaxCompressedLen(std::ssize(text), bytes)), '\0');
  packed.resize(static_cast<size_t>(
      codec->Compress(std::ssize(text), bytes, std::ssize(packed), reinterpret_cast<uint8_t*>(packed.data()))
          .ValueOrDie()));
  return packed;
}

// One token per byte of text.
inline void tokenize_bytes(std::string_view text, std::vector<int32_t>& ids) {
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
}

// `rows` prompts and responses, "p7" and "r7".
inline std::string prompt_lines(int64_t rows) {
  std::string text;
  for (int64_t row = 0; row < rows; ++row)
    text += R"({"prompt": "p)" + std::to_string(row) + R"(", "response": "r)" + std::to_string(row) + "\"}\n";
  return text;
}

}  // namespace plimsoll
