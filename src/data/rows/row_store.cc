#include "data/rows/row_store.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "files/atomic.h"

namespace plimsoll {
namespace {

constexpr int64_t kPlaceBytes = sizeof(int64_t);
constexpr int64_t kSumBytes = sizeof(uint32_t);
constexpr int64_t kHeadBytes = kSumBytes + 1;  // and what the record is
constexpr int64_t kCellBytes = 1 + sizeof(uint32_t);
// Room for the reasons of rows that cannot be read, the first ones in words.
constexpr int64_t kReasonBytes = 64 * kKiB;
constexpr size_t kPlacesHeld = 8192;
constexpr char kCells = 'c', kDamaged = 'd';

template <class T>
void append(const T& value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::vector<std::uint8_t> cbor_of(const Cell& cell) { return nlohmann::ordered_json::to_cbor(cell.json); }

void append_cell(const Cell& cell, StoredAs as, std::string& to) {
  const auto head = [&](size_t bytes) {
    append(as, to);
    append(static_cast<uint32_t>(bytes), to);
  };
  if (as == StoredAs::text) {
    head(cell.text.size());
    to += cell.text;
  } else if (as == StoredAs::ids) {
    const auto bytes = std::as_bytes(std::span(cell.ids));
    head(bytes.size());
    to.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else {
    const std::vector<std::uint8_t> cbor = cbor_of(cell);
    head(cbor.size());
    to.append(reinterpret_cast<const char*>(cbor.data()), cbor.size());
  }
}

void read_cell(StoredAs as, std::string_view bytes, Cell& cell) {
  switch (as) {
    case StoredAs::text:
      cell.text = bytes;
      return;
    case StoredAs::ids:
      cell.ids.resize(bytes.size() / sizeof(int32_t));
      if (!bytes.empty()) std::memcpy(cell.ids.data(), bytes.data(), bytes.size());
      return;
    case StoredAs::json:
      cell.json = nlohmann::ordered_json::from_cbor(bytes);
      return;
  }
}

class StoredRow final : public Block {
 public:
  StoredRow(std::string record, std::string where) : record_(std::move(record)), where_(std::move(where)) {}

  void read(int64_t /*row*/, Row& cells) const override {
    std::string_view rest = std::string_view(record_).substr(kHeadBytes);
    if (record_[kSumBytes] == kDamaged)
      throw DamagedError(rest.empty() ? where_ + ": cannot be read, as rows before it" : std::string(rest));
    for (size_t i = 0; !rest.empty(); ++i) {
      uint32_t bytes = 0;
      std::memcpy(&bytes, rest.data() + 1, sizeof bytes);
      cells.resize(std::max(cells.size(), i + 1));
      read_cell(static_cast<StoredAs>(rest[0]), rest.substr(kCellBytes, bytes), cells[i]);
      rest.remove_prefix(kCellBytes + bytes);
    }
  }
  [[nodiscard]] std::string where(int64_t /*row*/) const override { return where_; }

 private:
  std::string record_;
  std::string where_;
};

File open_store(const std::filesystem::path& folder, int64_t bytes, const std::string& or_else) {
  const int64_t free = free_disk_bytes(folder);
  if (free < bytes)
    throw DoesNotFitError(formatted(
        "does not fit   the scratch file of the shuffle (data.shuffle) needs {} in {}, where {} are "
        "free\n  free some space, choose a folder on another disk with --set output=FOLDER, or {}",
        format_bytes(bytes), folder.string(), format_bytes(free), or_else));
  File file = File::unnamed(folder, "shuffle");
  file.reserve(bytes);
  return file;
}

}  // namespace

int64_t row_store_bytes(int64_t rows, size_t columns, int64_t value_bytes) {
  if (rows == 0) return 0;
  const int64_t of_row = kPlaceBytes + kHeadBytes + static_cast<int64_t>(columns) * kCellBytes;
  return round_up(kPlaceBytes + rows * of_row + value_bytes + kReasonBytes, 4 * kKiB);
}

int64_t stored_value_bytes(const Row& cells, const std::vector<StoredAs>& columns) {
  size_t bytes = 0;
  for (size_t i = 0; i < columns.size(); ++i)
    bytes += columns[i] == StoredAs::text  ? cells[i].text.size()
             : columns[i] == StoredAs::ids ? cells[i].ids.size() * sizeof(int32_t)
                                           : cbor_of(cells[i]).size();
  return static_cast<int64_t>(bytes);
}

RowStore::RowStore(const std::filesystem::path& folder, int64_t rows, int64_t bytes,
                   const std::string& or_else)
    : file_(open_store(folder, bytes, or_else)),
      rows_(rows),
      bytes_(bytes),
      written_(kPlaceBytes * (rows + 1)),
      reasons_left_(kReasonBytes) {
  records_.reserve(static_cast<size_t>(kBufferBytes));
  places_.reserve(kPlacesHeld + 1);
  places_.push_back(written_);
}

void RowStore::add(const Row& cells, const std::vector<StoredAs>& columns) {
  record_.assign(kSumBytes, '\0');
  record_ += kCells;
  for (size_t i = 0; i < columns.size(); ++i) append_cell(cells[i], columns[i], record_);
  end_record();
}

void RowStore::add_damaged(const std::string& reason) {
  record_.assign(kSumBytes, '\0');
  record_ += kDamaged;
  if (const auto bytes = static_cast<int64_t>(reason.size()); bytes <= reasons_left_) {
    reasons_left_ -= bytes;
    record_ += reason;
  }
  end_record();
}

void RowStore::end_record() {
  const uint32_t sum = crc32c(as_bytes(std::string_view(record_).substr(kSumBytes)));
  std::memcpy(record_.data(), &sum, sizeof sum);
  if (std::ssize(records_) + std::ssize(record_) > kBufferBytes) write_records();
  records_ += record_;
  const int64_t end = written_ + std::ssize(records_);
  if (++next_row_ > rows_ || end > bytes_)
    throw DamagedError(formatted(
        "{}: the rows take more than the {} of the shuffle's scratch file: the data changed since they "
        "were planned. Start the run again.",
        file_.path().string(), format_bytes(bytes_)));
  places_.push_back(end);
  if (places_.size() > kPlacesHeld) write_places();
}

void RowStore::write_records() {
  file_.write(written_, as_bytes(records_));
  written_ += std::ssize(records_);
  records_.clear();
}

// Writes the places of the rows before next_row_, and its own.
void RowStore::write_places() {
  const int64_t first = next_row_ + 1 - std::ssize(places_);
  file_.write(first * kPlaceBytes, std::as_bytes(std::span(places_)));
  places_.clear();
}

void RowStore::finish() {
  check_internal(next_row_ == rows_, "a row store is finished before its last row");
  write_records();
  write_places();
  std::string().swap(record_);  // assigning an empty one keeps the memory
  std::string().swap(records_);
  std::vector<int64_t>().swap(places_);
  file_.expect_random_reads();
}

std::unique_ptr<Block> RowStore::load(int64_t row, std::string where) const {
  std::array<int64_t, 2> place{};
  file_.read(row * kPlaceBytes, std::as_writable_bytes(std::span(place)));
  const auto damaged = [&] {
    return StoppedError(formatted(
        "{}: the shuffle's scratch file does not hold what was written there ({}). Is the disk sound? "
        "The last checkpoint is intact: --resume continues from it",
        file_.path().string(), where));
  };
  if (place[0] < 0 || place[1] - place[0] < kHeadBytes || place[1] > bytes_) throw damaged();
  std::string record(static_cast<size_t>(place[1] - place[0]), '\0');
  file_.read(place[0], std::as_writable_bytes(std::span(record)));
  uint32_t sum = 0;
  std::memcpy(&sum, record.data(), sizeof sum);
  if (sum != crc32c(as_bytes(std::string_view(record).substr(kSumBytes)))) throw damaged();
  return std::make_unique<StoredRow>(std::move(record), std::move(where));
}

}  // namespace plimsoll
