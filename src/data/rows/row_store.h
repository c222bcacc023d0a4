// The rows of files that cannot give one row without decoding many others (a large Parquet row group,
// a file of gzip), written once into a file without a name and read from there one by one, in any order.
//
// The file's size is fixed before it is written: 8 bytes a row for where it lies, and what its values take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/cell.h"
#include "data/files/data_file.h"
#include "files/file.h"

namespace plimsoll {

// The kinds of content of a stored cell.
enum class StoredAs : uint8_t { text, ids, json };

// Bytes of a store of so many rows: for each row, for each of its values, and for the values themselves.
int64_t row_store_bytes(int64_t rows, size_t columns, int64_t value_bytes);
// Bytes of a row's values, as they are stored.
int64_t stored_value_bytes(const Row& cells, const std::vector<StoredAs>& columns);

class RowStore {
 public:
  // Claims the bytes in `folder`. Throws DoesNotFitError where they are not free, which says how to do
  // without them, StoppedError where the file cannot be made.
  RowStore(const std::filesystem::path& folder, int64_t rows, int64_t bytes, const std::string& or_else);

  // Writes the next row. Throws StoppedError where it cannot be written, DamagedError where the rows take
  // more than the bytes that were claimed.
  void add(const Row& cells, const std::vector<StoredAs>& columns);
  // The next row is one that cannot be read, for this reason.
  void add_damaged(const std::string& reason);
  // After the last row.
  void finish();

  // Throws StoppedError where it is not what was written. Reading the block's only row, numbered 0, throws
  // DamagedError with the row's reason where it was added as damaged. `where` is how messages call it.
  [[nodiscard]] std::unique_ptr<Block> load(int64_t row, std::string where) const;
  // Bytes on disk, as the system counts them.
  [[nodiscard]] int64_t bytes_on_disk() const { return file_.allocated(); }

  // Memory while it is written.
  static constexpr int64_t kBufferBytes = kMiB;

 private:
  void end_record();
  void write_records();
  void write_places();

  File file_;
  int64_t rows_;
  int64_t bytes_;
  int64_t next_row_ = 0;
  int64_t written_ = 0;  // end of the records in the file; those in records_ follow
  std::string record_, records_;
  std::vector<int64_t> places_;  // ends of records that are not in the file yet
  int64_t reasons_left_;         // bytes that reasons may still take
};

}  // namespace plimsoll
