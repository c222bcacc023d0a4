// All rows of a data set, numbered through its files, with a bounded part of them in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/data_file.h"
#include "data/files/data_files.h"
#include "data/rows/columns.h"
#include "data/rows/row_store.h"

namespace plimsoll {

// A unit with the number of its first row in the data set; `group` is unique over all files.
struct PlacedUnit : Unit {
  int64_t first_row = 0;
  int32_t source = 0;   // number of the path it comes from
  double weight = 1.0;  // of that path
};

// A path with how often an epoch visits its rows: 2 is twice, 0.25 a quarter of them, another one in every
// epoch.
struct WeightedPath {
  std::filesystem::path path;
  double weight = 1.0;
};

// The cost of reading rows one by one: most bytes of a part that a row is read with, seconds for all of them
// once, and the store for the rows whose files cannot do it.
struct RowsAlone {
  int64_t bytes = 0;
  double seconds = 0;  // in addition to those for stored rows
  int64_t stored_rows = 0;
  int64_t store_bytes = 0;
  bool from_start = false;  // DataFile::reads_from_start() of a stored one
  bool exact = true;        // else the store's bytes are an estimate, until measure_store()
};

class Dataset {
 public:
  // The files of these paths (data_files.h), in the given order, of each text its first `most_rows` at least.
  // Throws UsageError or DamagedError.
  static Dataset open(std::span<const WeightedPath> paths, RowErrors on_error = RowErrors::stop,
                      const TabText& tabs = {}, int64_t most_rows = kAllRows);
  static Dataset open(std::span<const std::filesystem::path> paths);

  // The same files, open already, with the same columns selected; nothing is held. Both read them, one at a
  // time, and neither may select others.
  [[nodiscard]] Dataset again() const;

  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;
  ~Dataset();

  // The first path given: how messages call the data set.
  [[nodiscard]] const std::string& name() const { return name_; }
  // The columns of the first file that has rows.
  [[nodiscard]] std::span<const Column> columns() const;
  // Calls `bind` with the data set's columns. Where it throws UsageError, because the first row lacks what
  // rows need, the columns of other rows among the first are tried; the first that it takes become the data
  // set's, and where it takes none the first error is thrown.
  ColumnBinding bind(const std::function<ColumnBinding(std::span<const Column>)>& bind);
  // Each file of which some of the first rows have such a column, as a data set of its own that shares the open file:
  // bind() and select() of this one come after those have been read.
  [[nodiscard]] std::vector<Dataset> files_with(const std::string& column) const;
  // Chooses what rows are read with; every file must have these columns. Throws UsageError naming those that
  // exist, or when there is no row at all. Drops what is held.
  void select(std::span<const std::string> columns, ReadAs as = ReadAs::kind);

  // Below: after select().
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] std::span<const PlacedUnit> units() const { return units_; }
  // The number of the unit that has this row.
  [[nodiscard]] size_t unit_of(int64_t row) const;
  [[nodiscard]] RowErrors on_error() const { return on_error_; }
  // Bytes of the longest row, of files whose rows lie in them as text; 0: none is such a file.
  [[nodiscard]] int64_t longest_row() const;
  // Keeps exactly these units in memory, loading the absent ones in the given order. A unit that is damaged
  // is held too: reading any of its rows throws.
  void hold(std::span<const size_t> units);
  // A unit for a caller that holds it by itself, from one thread at a time; what is damaged throws where its
  // rows are read.
  [[nodiscard]] std::unique_ptr<Block> load(size_t unit) const;
  // Reads a row of a unit that is held.
  void read(int64_t row, Row& cells) const;
  [[nodiscard]] std::string where(int64_t row) const;
  // The block of a unit that is held of a row and the row's number in it.
  [[nodiscard]] std::pair<const Block*, int64_t> find(int64_t row) const;

  [[nodiscard]] RowsAlone rows_alone() const;
  // Reads all rows that are to be stored, where their files do not tell what they take.
  void measure_store();
  // Writes them, into a file without a name in `folder`. Throws as RowStore does.
  void store_rows(const std::filesystem::path& folder,
                  const std::function<void(int64_t done, int64_t rows)>& progress);
  // Bytes on disk of the rows that are stored.
  [[nodiscard]] int64_t stored_bytes() const { return store_ == nullptr ? 0 : store_->bytes_on_disk(); }
  // Holds this row and few others, in addition to those that are held. A damaged row throws where it is read.
  void hold_row(int64_t row);

  // Memory while at most `held_bytes` of units are held: what to expect, and the bound that Arrow is kept to.
  [[nodiscard]] int64_t expected_bytes(int64_t held_bytes) const;
  [[nodiscard]] int64_t bound_bytes(int64_t held_bytes) const;
  // Memory that takes what is known of the files without their rows: where units lie, footers.
  [[nodiscard]] int64_t index_bytes() const;
  // Rows of more values of JSON are damaged from here on.
  void limit_values(int64_t most);
  // Makes the bound hold.
  void cap_memory(int64_t held_bytes);
  // Largest bytes that Arrow has held so far.
  [[nodiscard]] int64_t peak_arrow_bytes() const;

 private:
  struct Source {
    std::shared_ptr<DataFile> file;
    int32_t path = 0;
    double weight = 1.0;
    size_t first_unit = 0;
    std::string path_name = {};
    int64_t first_row = 0;
    int64_t rows = 0;
    // For a file whose rows are stored, the number of its first row there, else -1.
    int64_t first_stored = -1;
    std::vector<StoredAs> columns = {};
    std::optional<int64_t> value_bytes = {};  // of all rows in the store, where they are known
  };
  struct Alone {
    std::unique_ptr<Block> block;
    int64_t first_row = 0;
    int64_t rows = 0;
  };

  Dataset();
  [[nodiscard]] DataFile& first_file() const;  // that has rows
  [[nodiscard]] const Source& source_of(int64_t row) const;
  void choose_stored(Source& source, std::span<const std::string> columns, ReadAs as);
  [[nodiscard]] Alone load_alone(int64_t row) const;
  [[nodiscard]] std::span<const PlacedUnit> units_of(const Source& source) const;
  // Shows the rows of a source that is stored: their cells, or why they cannot be read.
  void for_stored_rows(const Source& source, const std::function<void(const Row&)>& take,
                       const std::function<void(const std::string&)>& take_damaged) const;

  std::string name_;
  std::shared_ptr<CappedMemoryPool> pool_;  // before the files: their buffers go back to it
  std::vector<Source> sources_;
  std::vector<PlacedUnit> units_;
  std::map<size_t, std::unique_ptr<Block>> held_;  // by unit
  std::unique_ptr<RowStore> store_;
  Alone alone_;
  int64_t rows_ = 0;
  int64_t stored_rows_ = 0;
  bool uses_arrow_ = false;
  RowErrors on_error_ = RowErrors::stop;
};

}  // namespace plimsoll
