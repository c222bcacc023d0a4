// All rows of a data set, numbered through its files, with a bounded part of them in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/columns.h"
#include "data/data_file.h"
#include "data/data_files.h"

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

class Dataset {
 public:
  // The files of these paths (data_files.h), in the given order. Throws UsageError or DamagedError.
  static Dataset open(std::span<const WeightedPath> paths, RowErrors on_error = RowErrors::stop,
                      const TabText& tabs = {});
  static Dataset open(std::span<const std::filesystem::path> paths);

  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;
  ~Dataset();

  // The first path given: how messages call the data set.
  [[nodiscard]] const std::string& name() const { return name_; }
  // Of the first file that has rows.
  [[nodiscard]] std::span<const Column> columns() const;
  // What `bind` makes of its columns. Where it throws UsageError, because the first row has not what rows
  // need, the columns of other rows among the first are tried; the first that it takes become the data set's,
  // and where it takes none the first error is thrown.
  ColumnBinding bind(const std::function<ColumnBinding(std::span<const Column>)>& bind);
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

  // Memory while at most `held_bytes` of units are held: what to expect, and the bound that Arrow is kept to.
  [[nodiscard]] int64_t expected_bytes(int64_t held_bytes) const;
  [[nodiscard]] int64_t bound_bytes(int64_t held_bytes) const;
  // Makes the bound hold.
  void cap_memory(int64_t held_bytes);
  // Largest bytes that Arrow has held so far.
  [[nodiscard]] int64_t peak_arrow_bytes() const;

 private:
  struct Source {
    std::unique_ptr<DataFile> file;
    int32_t path = 0;
    double weight = 1.0;
    size_t first_unit = 0;
  };

  Dataset();
  [[nodiscard]] DataFile& first_file() const;  // that has rows

  std::string name_;
  std::unique_ptr<CappedMemoryPool> pool_;  // before the files: their buffers go back to it
  std::vector<Source> sources_;
  std::vector<PlacedUnit> units_;
  std::map<size_t, std::unique_ptr<Block>> held_;  // by unit
  int64_t rows_ = 0;
  bool uses_arrow_ = false;
  RowErrors on_error_ = RowErrors::stop;
};

}  // namespace plimsoll
