// Arrow IPC, as Hugging Face's `datasets` saves it (stream) and as Feather files are (file). The file format
// is a stream between a magic word and a footer, so that both are walked message by message: only the
// headers are read to find the batches, and a unit is some consecutive ones.
#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/utf8.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "data/files/arrow_error.h"
#include "data/files/memory_pool.h"
#include "data/files/parquet_block.h"
#include "data/files/scanned_file.h"

namespace plimsoll {
namespace {

constexpr std::string_view kMagic = "ARROW1";
constexpr int64_t kMagicBytes = 8;  // padded
constexpr uint32_t kContinuation = 0xFFFFFFFFU;
constexpr int64_t kMaxHeaderBytes = 16 * kMiB;

struct MessagePlace {
  int64_t header = 0;  // offset and bytes of the flatbuffer, without its length
  int32_t header_bytes = 0;
  int64_t body_bytes = 0;

  [[nodiscard]] int64_t body() const { return header + header_bytes; }
};

struct Batch : MessagePlace {
  int64_t rows = 0;
  int64_t bytes = 0;  // in memory
};

// A field of a flatbuffer table, null where it is left out. Arrow has verified the buffer.
const uint8_t* table_field(const void* table, uint16_t number) {
  const auto* base = static_cast<const uint8_t*>(table);
  int32_t to_vtable = 0;
  std::memcpy(&to_vtable, base, sizeof to_vtable);
  const uint8_t* vtable = base - to_vtable;
  uint16_t vtable_bytes = 0;
  std::memcpy(&vtable_bytes, vtable, sizeof vtable_bytes);
  const size_t slot = 4U + 2U * number;
  if (slot + 2 > vtable_bytes) return nullptr;
  uint16_t offset = 0;
  std::memcpy(&offset, vtable + slot, sizeof offset);
  return offset == 0 ? nullptr : base + offset;
}

// RecordBatch's fields in Arrow's Message.fbs: length, nodes, buffers, compression.
int64_t batch_rows(const arrow::ipc::Message& message) {
  int64_t rows = 0;
  if (const uint8_t* field = table_field(message.header(), 0)) std::memcpy(&rows, field, sizeof rows);
  return rows;
}
bool is_compressed(const arrow::ipc::Message& message) { return table_field(message.header(), 3) != nullptr; }

class ArrowFile final : public DataFile {
 public:
  ArrowFile(const std::filesystem::path& path, CappedMemoryPool& pool) : path_(path.string()), pool_(pool) {
    arrow::util::InitializeUTF8();
    file_ = check(arrow::io::ReadableFile::Open(path_, &pool_));
    stamp_.emplace(path_, *file_);
    index();
    const auto reader = open_messages({});
    schema_ = reader->schema();
    for (const auto& field : schema_->fields())
      columns_.push_back({field->name(), parquet_column_kind(*field->type()), field->type()->ToString()});
    measure_compressed();
  }

  [[nodiscard]] const std::vector<Column>& columns() const override { return columns_; }

  std::vector<Unit> select(std::span<const std::string> columns, ReadAs as) override {
    selected_.clear();
    fields_.clear();
    for (const std::string& name : columns) select_column(name, as);
    units_.clear();
    ends_.clear();
    std::vector<Unit> units;
    int64_t row = 0;
    for (size_t i = 0; i < batches_.size(); ++i) {
      const Batch& batch = batches_[i];
      ends_.push_back(row + batch.rows);
      if (batch.rows == 0) continue;
      if (units.empty() || units.back().bytes + batch.bytes > kUnitBytes) {
        units.push_back({0, 0, static_cast<int32_t>(units.size())});
        units_.push_back({i, i, row});
      }
      units.back().rows += batch.rows;
      units.back().bytes += batch.bytes;
      units_.back().end = i + 1;
      row += batch.rows;
    }
    return units;
  }

  std::unique_ptr<Block> load(size_t unit) override {
    stamp_->require_unchanged();
    return load(units_[unit]);
  }

  RowPart load_row(int64_t row) override {
    stamp_->require_unchanged();
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), row);
    check_internal(end != ends_.end(), "a row was read that the file does not have");
    const auto batch = static_cast<size_t>(end - ends_.begin());
    const int64_t first = *end - batches_[batch].rows;
    return {load({batch, batch + 1, first}), first, batches_[batch].rows};
  }
  // A batch is read whole, with all of its columns.
  [[nodiscard]] RowCost row_cost() const override {
    constexpr double kBytesPerSecond = 1e9, kDecompressed = 4e8;
    RowCost cost;
    double all = 0, rows = 0;
    for (const Batch& batch : batches_) {
      cost.bytes = std::max(cost.bytes, batch.bytes);
      all += static_cast<double>(batch.bytes) * static_cast<double>(batch.rows);
      rows += static_cast<double>(batch.rows);
    }
    cost.seconds = all / std::max(1.0, rows) / (compressed_ ? kDecompressed : kBytesPerSecond);
    return cost;
  }

 private:
  // Batches that are read together, and their first row's number in the file.
  struct UnitRange {
    size_t begin = 0;
    size_t end = 0;
    int64_t first_row = 0;
  };

  std::unique_ptr<Block> load(const UnitRange& range) {
    const auto reader = open_messages(std::span(batches_).subspan(range.begin, range.end - range.begin));
    auto block = std::make_unique<ParquetBlock>(path_, selected_, range.first_row, most_values());
    for (size_t i = range.begin; i < range.end; ++i) {
      std::shared_ptr<arrow::RecordBatch> batch;
      check(reader->ReadNext(&batch));
      if (batch == nullptr || batch->num_rows() != batches_[i].rows)
        throw DamagedError(path_ + ": changed while it was read.");
      // Offsets and lengths come from the file: nothing may point outside its batch.
      check(batch->ValidateFull());
      if (batch->num_rows() > 0) block->add(std::move(batch));
    }
    return block;
  }

  [[noreturn]] void fail(const arrow::Status& status) const {
    if (status.IsOutOfMemory())
      throw DoesNotFitError(formatted(
          "{}: its record batches take more memory than planned ({}). Write it again with smaller batches.",
          path_, reason_of(status)));
    require_device(path_, status);
    throw DamagedError(formatted("{}: cannot be read as Arrow IPC: {}.", path_, reason_of(status)));
  }
  void check(const arrow::Status& status) const {
    if (!status.ok()) fail(status);
  }
  template <typename T>
  T check(arrow::Result<T> result) const {
    if (!result.ok()) fail(result.status());
    return std::move(result).ValueUnsafe();
  }

  // Finds schema, dictionaries and batches.
  void index() {
    const int64_t size = check(file_->GetSize());
    int64_t offset = begins_with_magic(size) ? kMagicBytes : 0;
    while (offset < size) {
      const auto place = read_prefix(offset, size);
      if (!place) break;
      const auto message = read_header(*place);
      MessagePlace found = *place;
      found.body_bytes = message->body_length();
      if (found.body_bytes < 0 || found.body_bytes > size - found.body())
        throw DamagedError(path_ + ": ends within a record batch. Fetch it again.");
      add(found, *message);
      offset = found.body() + found.body_bytes;
    }
    if (!has_schema_) throw DamagedError(path_ + ": is no Arrow IPC file: it holds no schema.");
  }

  [[nodiscard]] bool begins_with_magic(int64_t size) const {
    std::array<char, kMagic.size()> start{};
    if (size < static_cast<int64_t>(start.size())) return false;
    check(file_->ReadAt(0, static_cast<int64_t>(start.size()), start.data()));
    return std::string_view(start.data(), start.size()) == kMagic;
  }

  // Finds the header of the message at `offset`; none at the stream's end.
  [[nodiscard]] std::optional<MessagePlace> read_prefix(int64_t offset, int64_t size) const {
    std::array<uint32_t, 2> words{};
    const int64_t read = check(file_->ReadAt(offset, sizeof words, words.data()));
    // Files from before Arrow 0.15 have no continuation word.
    const bool old = words[0] != kContinuation;
    const uint32_t bytes = old ? words[0] : words[1];
    const int64_t start = offset + (old ? 4 : 8);
    if (read < 4 || (!old && read < 8))
      throw DamagedError(path_ + ": ends within a message. Fetch it again.");
    if (bytes == 0) return std::nullopt;
    if (bytes > kMaxHeaderBytes || bytes > size - start)
      throw DamagedError(path_ + ": is no Arrow IPC file, or ends within a message. Fetch it again.");
    return MessagePlace{start, static_cast<int32_t>(bytes), 0};
  }

  [[nodiscard]] std::unique_ptr<arrow::ipc::Message> read_header(const MessagePlace& place) const {
    return check(arrow::ipc::Message::Open(check(file_->ReadAt(place.header, place.header_bytes)), nullptr));
  }

  void add(const MessagePlace& place, const arrow::ipc::Message& message) {
    switch (message.type()) {
      case arrow::ipc::MessageType::SCHEMA:
        if (has_schema_) throw DamagedError(path_ + ": holds two schemas.");
        has_schema_ = true;
        preamble_.push_back(place);
        return;
      case arrow::ipc::MessageType::DICTIONARY_BATCH:
        if (!batches_.empty())
          throw UsageError(path_ + ": its dictionaries change between batches. Write it again without.");
        preamble_.push_back(place);
        return;
      case arrow::ipc::MessageType::RECORD_BATCH: {
        const int64_t rows = batch_rows(message);
        // Every row takes a bit of validity or an offset at least, but for columns of nulls.
        if (rows < 0 || rows > std::numeric_limits<int32_t>::max())
          throw DamagedError(formatted("{}: a record batch claims {} rows.", path_, rows));
        compressed_ = compressed_ || is_compressed(message);
        batches_.push_back({place, rows, place.header_bytes + place.body_bytes});
        return;
      }
      default:
        throw UsageError(path_ + ": holds Arrow tensors, not rows.");
    }
  }

  // Reads compressed batches: only so is it known how large they become.
  void measure_compressed() {
    if (!compressed_) return;
    for (Batch& batch : batches_) {
      std::shared_ptr<arrow::RecordBatch> read;
      check(open_messages(std::span(&batch, 1))->ReadNext(&read));
      if (read == nullptr) throw DamagedError(path_ + ": changed while it was read.");
      batch.bytes = batch.header_bytes + batch.body_bytes;
      for (const auto& column : read->columns()) batch.bytes += bytes_of(*column->data());
    }
  }
  static int64_t bytes_of(const arrow::ArrayData& data) {
    int64_t bytes = 0;
    for (const auto& buffer : data.buffers)
      if (buffer != nullptr) bytes += buffer->size();
    for (const auto& child : data.child_data) bytes += bytes_of(*child);
    return bytes;
  }

  void select_column(const std::string& name, ReadAs as) {
    const Column& column = find_column(columns_, name, path_);
    if (std::count_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; }) > 1)
      throw UsageError(formatted("{}: has more than one column '{}'. Rename one.", path_, name));
    const auto index = static_cast<int>(&column - columns_.data());
    if (as == ReadAs::json) {
      const std::string unknown = type_without_json(*schema_->field(index)->type());
      if (!unknown.empty())
        throw UsageError(
            formatted("{}: column '{}' holds values of the type {}, which conversations have no use for.",
                      path_, name, unknown));
    }
    selected_.push_back({column, {}, 0, as});
    fields_.push_back(index);
  }

  // Gives Arrow's reader the schema, the dictionaries and some batches, as if the file held nothing else.
  class Messages final : public arrow::ipc::MessageReader {
   public:
    Messages(const ArrowFile& file, std::vector<MessagePlace> places)
        : file_(file), places_(std::move(places)) {}
    arrow::Result<std::unique_ptr<arrow::ipc::Message>> ReadNextMessage() override {
      if (next_ == places_.size()) return std::unique_ptr<arrow::ipc::Message>();
      const MessagePlace& place = places_[next_++];
      ARROW_ASSIGN_OR_RAISE(auto header, file_.file_->ReadAt(place.header, place.header_bytes));
      return arrow::ipc::Message::ReadFrom(place.body(), std::move(header), file_.file_.get());
    }

   private:
    const ArrowFile& file_;
    std::vector<MessagePlace> places_;
    size_t next_ = 0;
  };

  [[nodiscard]] std::shared_ptr<arrow::RecordBatchReader> open_messages(
      std::span<const Batch> batches) const {
    std::vector<MessagePlace> places = preamble_;
    places.insert(places.end(), batches.begin(), batches.end());
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = &pool_;
    options.use_threads = false;
    options.included_fields = fields_;
    return check(arrow::ipc::RecordBatchStreamReader::Open(
        std::make_unique<Messages>(*this, std::move(places)), options));
  }

  std::string path_;
  CappedMemoryPool& pool_;
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::optional<FileStamp> stamp_;
  std::vector<MessagePlace> preamble_;  // schema, dictionaries
  std::vector<Batch> batches_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<Column> columns_;
  std::vector<SelectedColumn> selected_;
  std::vector<int> fields_;  // of the schema, as selected
  std::vector<UnitRange> units_;
  std::vector<int64_t> ends_;  // the file's row behind each batch
  bool has_schema_ = false;
  bool compressed_ = false;
};

}  // namespace

std::unique_ptr<DataFile> open_arrow(const std::filesystem::path& path, CappedMemoryPool& pool) {
  return std::make_unique<ArrowFile>(path, pool);
}

}  // namespace plimsoll
