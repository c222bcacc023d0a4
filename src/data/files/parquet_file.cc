// Parquet, read forward in small batches without threads or read-ahead. Row groups may be larger than memory:
// a unit is a slice of one, and the reader stays open from slice to slice.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/util/utf8.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/size_statistics.h>

#include <algorithm>
#include <limits>
#include <new>

#include "base/error.h"
#include "base/format.h"
#include "data/files/arrow_error.h"
#include "data/files/cell.h"
#include "data/files/data_file.h"
#include "data/files/memory_pool.h"
#include "data/files/parquet_block.h"
#include "data/files/scanned_file.h"

namespace plimsoll {
namespace {

// Bytes that the reader decodes at a time. Smaller costs speed, larger costs transient memory.
constexpr int64_t kBatchBytes = kMiB;
constexpr int64_t kMaxBatchRows = 1024;
// Bytes of file held per column while its pages are decoded.
constexpr int64_t kReadBufferBytes = 64 * kKiB;

[[noreturn]] void fail(const std::string& path, const arrow::Status& status) {
  if (status.IsOutOfMemory())
    throw DoesNotFitError(formatted(
        "{}: its rows take more memory than its metadata says ({}). Write it again with size statistics, "
        "as pyarrow 19 and newer do.",
        path, reason_of(status)));
  require_device(path, status);
  throw DamagedError(formatted("{}: cannot be read as Parquet: {}.", path, reason_of(status)));
}

void check(const std::string& path, const arrow::Status& status) {
  if (!status.ok()) fail(path, status);
}

template <typename T>
T check(const std::string& path, arrow::Result<T> result) {
  if (!result.ok()) fail(path, result.status());
  return std::move(result).ValueUnsafe();
}

// Arrow answers with a status and the Parquet reader throws, some of it std::exception, for a damaged footer.
template <typename Call>
auto guarded(const std::string& path, Call&& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const parquet::ParquetStatusException& error) {
    fail(path, error.status());
  } catch (const std::exception& error) {
    throw DamagedError(formatted("{}: cannot be read as Parquet: {}.", path, error.what()));
  }
}

std::unique_ptr<parquet::arrow::FileReader> open_reader(const std::string& path,
                                                        std::shared_ptr<arrow::io::ReadableFile> file,
                                                        CappedMemoryPool& pool) {
  parquet::ReaderProperties properties(&pool);
  properties.enable_buffered_stream();
  properties.set_buffer_size(kReadBufferBytes);
  parquet::ArrowReaderProperties arrow_properties;
  arrow_properties.set_use_threads(false);
  arrow_properties.set_pre_buffer(false);
  arrow::util::InitializeUTF8();  // for ValidateUTF8 below
  return guarded(path, [&] {
    parquet::arrow::FileReaderBuilder builder;
    check(path, builder.Open(std::move(file), properties));
    return check(path, builder.memory_pool(&pool)->properties(arrow_properties)->Build());
  });
}

// A slice of a row group.
struct GroupRange {
  int group = 0;
  int64_t group_row = 0;  // first row, counted within the group
  int64_t file_row = 0;   // counted within the file
  int64_t rows = 0;
};

class ParquetFile final : public DataFile {
 public:
  ParquetFile(const std::filesystem::path& path, CappedMemoryPool& pool)
      : path_(path.string()),
        file_(guarded(path_, [&] { return check(path_, arrow::io::ReadableFile::Open(path_, &pool)); })),
        stamp_(path_, *file_),
        reader_(open_reader(path_, file_, pool)) {
    for (const auto& field : reader_->manifest().schema_fields)
      columns_.push_back(
          {field.field->name(), parquet_column_kind(*field.field->type()), field.field->type()->ToString()});
  }

  [[nodiscard]] const std::vector<Column>& columns() const override { return columns_; }

  std::vector<Unit> select(std::span<const std::string> columns, ReadAs as) override {
    return guarded(path_, [&] { return cut_into_units(columns, as); });
  }

  std::unique_ptr<Block> load(size_t unit) override {
    stamp_.require_unchanged();
    try {
      return guarded(path_, [&] { return load_unit(ranges_[unit], is_last_of_group(unit)); });
    } catch (...) {
      batches_.reset();  // it stands nobody knows where
      throw;
    }
  }

  RowPart load_row(int64_t row) override {
    const auto next = std::upper_bound(ranges_.begin(), ranges_.end(), row,
                                       [](int64_t r, const GroupRange& range) { return r < range.file_row; });
    check_internal(next != ranges_.begin(), "a row was read that the file does not have");
    const GroupRange& range = *std::prev(next);
    return {load(static_cast<size_t>(&range - ranges_.data())), range.file_row, range.rows};
  }
  [[nodiscard]] RowCost row_cost() const override { return row_cost_; }
  [[nodiscard]] std::optional<int64_t> stored_bytes() const override { return stored_bytes_; }

  // The footer as it is read; then its texts (names, the least and greatest values of columns) and a
  // structure for each column of each row group.
  [[nodiscard]] int64_t index_bytes() const override {
    constexpr int64_t kChunkBytes = 1536;
    const auto metadata = reader_->parquet_reader()->metadata();
    return 2 * int64_t{metadata->size()} +
           kChunkBytes * int64_t{metadata->num_row_groups()} * metadata->num_columns();
  }

 private:
  std::vector<Unit> cut_into_units(std::span<const std::string> columns, ReadAs as) {
    selected_.clear();
    for (const std::string& name : columns) selected_.push_back(locate(name, as));
    batches_.reset();
    ranges_.clear();
    row_cost_ = {};
    stored_bytes_ = 0;
    std::vector<Unit> units;
    const auto metadata = reader_->parquet_reader()->metadata();
    int64_t file_row = 0;
    batch_rows_ = kMaxBatchRows;
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      const int64_t rows = rows_of(*metadata, group);
      if (rows == 0) continue;
      batch_rows_ = std::clamp<int64_t>(kBatchBytes * rows / decoded_bytes(*metadata, group), 1, batch_rows_);
    }
    for (int group = 0; group < metadata->num_row_groups(); ++group)
      file_row = cut_group(*metadata, group, file_row, units);
    row_cost_.seconds /= static_cast<double>(std::max<int64_t>(1, file_row));
    return units;
  }

  [[nodiscard]] bool is_last_of_group(size_t unit) const {
    return unit + 1 == ranges_.size() || ranges_[unit + 1].group != ranges_[unit].group;
  }

  std::unique_ptr<Block> load_unit(const GroupRange& range, bool last_of_group) {
    seek(range);
    auto block = std::make_unique<ParquetBlock>(path_, selected_, range.file_row, most_values());
    while (block->rows() < range.rows) block->add(next_batch());
    check_internal(block->rows() == range.rows, "a Parquet batch crosses the end of its unit");
    next_row_ += range.rows;
    if (last_of_group) batches_.reset();
    return block;
  }

  [[nodiscard]] SelectedColumn locate(const std::string& name, ReadAs as) const {
    const Column& column = find_column(columns_, name, path_);
    if (std::count_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; }) > 1)
      throw UsageError(formatted("{}: has more than one column '{}'. Rename one.", path_, name));
    const auto index = static_cast<size_t>(&column - columns_.data());
    const parquet::arrow::SchemaField* field = &reader_->manifest().schema_fields[index];
    if (as == ReadAs::json) return {column, leaves_for_json(*field, name), 0, as};
    int64_t value_bytes = 0;
    if (column.kind == ColumnKind::ids) {
      field = field->children.data();
      value_bytes = field->field->type()->byte_width();
    }
    return {column, {field->column_index}, value_bytes, as};
  }

  [[nodiscard]] std::vector<int> leaves_for_json(const parquet::arrow::SchemaField& field,
                                                 const std::string& name) const {
    const std::string unknown = type_without_json(*field.field->type());
    if (!unknown.empty())
      throw UsageError(
          formatted("{}: column '{}' holds values of the type {}, which conversations have no use for.",
                    path_, name, unknown));
    std::vector<int> leaves;
    add_leaves(field, leaves);
    return leaves;
  }

  static void add_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
    if (field.column_index >= 0) leaves.push_back(field.column_index);
    for (const auto& child : field.children) add_leaves(child, leaves);
  }

  // A number of the footer, which must be below 2^44 (16 TiB), so that what is computed from it stays in 63
  // bits.
  [[nodiscard]] int64_t sane(int64_t number) const {
    if (number < 0 || number >= int64_t{1} << 44)
      throw DamagedError(formatted("{}: its footer claims a size of {}. Fetch it again.", path_, number));
    return number;
  }

  [[nodiscard]] int64_t rows_of(const parquet::FileMetaData& metadata, int group) const {
    const int64_t rows = metadata.RowGroup(group)->num_rows();
    if (rows < 0 || rows > std::numeric_limits<int32_t>::max())
      throw DamagedError(formatted("{}: row group {} claims {} rows. Fetch it again.", path_, group, rows));
    return rows;
  }

  // Memory of a row group's selected columns once decoded; at least 1.
  [[nodiscard]] int64_t decoded_bytes(const parquet::FileMetaData& metadata, int group) const {
    // 8 bytes a row and column: offsets are 4 or 8, validity is a bit.
    int64_t bytes = 8 * rows_of(metadata, group) * static_cast<int64_t>(selected_.size());
    const auto row_group = metadata.RowGroup(group);
    for (const SelectedColumn& selected : selected_)
      for (const int leaf : selected.leaves)
        bytes += decoded_bytes(*row_group->ColumnChunk(leaf), selected.value_bytes);
    return std::max<int64_t>(1, bytes);
  }

  [[nodiscard]] int64_t decoded_bytes(const parquet::ColumnChunkMetaData& chunk, int64_t value_bytes) const {
    if (value_bytes > 0) return sane(chunk.num_values()) * value_bytes;
    const auto sizes = chunk.size_statistics();
    if (sizes != nullptr && sizes->unencoded_byte_array_data_bytes.has_value())
      return sane(*sizes->unencoded_byte_array_data_bytes);
    return sane(chunk.total_uncompressed_size());
  }

  // Bytes of the values as they are, where the footer has them.
  [[nodiscard]] std::optional<int64_t> value_bytes(const parquet::RowGroupMetaData& row_group) const {
    int64_t bytes = 0;
    for (const SelectedColumn& selected : selected_) {
      if (selected.as == ReadAs::json) return std::nullopt;
      const auto chunk = row_group.ColumnChunk(selected.leaves.front());
      const auto sizes = chunk->size_statistics();
      if (selected.value_bytes > 0)
        bytes += sane(chunk->num_values()) * int64_t{sizeof(int32_t)};
      else if (sizes != nullptr && sizes->unencoded_byte_array_data_bytes.has_value())
        bytes += sane(*sizes->unencoded_byte_array_data_bytes);
      else
        return std::nullopt;
    }
    return bytes;
  }

  // Adds the cost of reading a row by itself, and of all rows in a store: the group is decoded up to the row.
  void add_costs(const parquet::FileMetaData& metadata, int group, int64_t rows, int64_t bytes) {
    constexpr double kDecodedPerSecond = 2e8, kSecondsOfGroup = 2e-4;  // measured (bench/results)
    const std::optional<int64_t> values = value_bytes(*metadata.RowGroup(group));
    if (stored_bytes_ && values)
      *stored_bytes_ += *values;
    else
      stored_bytes_.reset();
    const bool one_unit = ranges_.back().group_row == 0;
    row_cost_.bytes = std::max(row_cost_.bytes, one_unit ? bytes : std::min(bytes, 2 * kUnitBytes));
    row_cost_.seconds +=
        static_cast<double>(rows) *
        (kSecondsOfGroup + static_cast<double>(bytes) / kDecodedPerSecond / (one_unit ? 1 : 2));
  }

  // Appends the group's units; returns the file's row after the group.
  int64_t cut_group(const parquet::FileMetaData& metadata, int group, int64_t file_row,
                    std::vector<Unit>& units) {
    const int64_t rows = rows_of(metadata, group);
    const int64_t bytes = decoded_bytes(metadata, group);
    // Whole batches, so that none crosses the end of a unit.
    const int64_t batches = rows == 0 ? 1 : std::max<int64_t>(1, kUnitBytes * rows / bytes / batch_rows_);
    const int64_t unit_rows = batches * batch_rows_;
    for (int64_t row = 0; row < rows; row += unit_rows) {
      const int64_t count = std::min(unit_rows, rows - row);
      ranges_.push_back({group, row, file_row + row, count});
      units.push_back({count, ceil_div(bytes, rows) * count, group});
    }
    if (rows > 0) add_costs(metadata, group, rows, bytes);
    return file_row + rows;
  }

  // Opens the range's group unless the reader stands there already, and skips to its first row.
  void seek(const GroupRange& range) {
    if (batches_ == nullptr || group_ != range.group || next_row_ > range.group_row) {
      std::vector<int> leaves;
      for (const SelectedColumn& selected : selected_)
        leaves.insert(leaves.end(), selected.leaves.begin(), selected.leaves.end());
      batches_.reset();
      reader_->set_batch_size(batch_rows_);
      batches_ = check(path_, reader_->GetRecordBatchReader({range.group}, leaves));
      group_ = range.group;
      next_row_ = 0;
    }
    while (next_row_ < range.group_row) next_row_ += next_batch()->num_rows();
  }

  std::shared_ptr<arrow::RecordBatch> next_batch() {
    std::shared_ptr<arrow::RecordBatch> batch;
    check(path_, batches_->ReadNext(&batch));
    if (batch == nullptr)
      throw DamagedError(formatted("{}: row group {} has fewer rows than it says.", path_, group_));
    return batch;
  }

  std::string path_;
  std::shared_ptr<arrow::io::ReadableFile> file_;
  FileStamp stamp_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<Column> columns_;
  std::vector<SelectedColumn> selected_;
  std::vector<GroupRange> ranges_;
  RowCost row_cost_;
  std::optional<int64_t> stored_bytes_;
  int64_t batch_rows_ = kMaxBatchRows;
  std::unique_ptr<arrow::RecordBatchReader> batches_;  // of group_, standing before its row next_row_
  int group_ = 0;
  int64_t next_row_ = 0;
};

}  // namespace

std::unique_ptr<DataFile> open_parquet(const std::filesystem::path& path, CappedMemoryPool& pool) {
  return std::make_unique<ParquetFile>(path, pool);
}

}  // namespace plimsoll
