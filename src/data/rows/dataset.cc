#include "data/rows/dataset.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "data/files/cell.h"
#include "data/files/memory_pool.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

// Above the units held: pages, dictionaries and builders of one row group's columns while they are decoded.
// Measured with pages of 1 MiB, as writers make them: 6.4 MiB by Arrow's count and 9 to 11 MiB by the
// process's.
constexpr int64_t kExpectedDecodeBytes = 10 * kMiB;
// Pages and dictionaries may be larger than usual, and units than their estimate.
constexpr int64_t kBoundDecodeBytes = 32 * kMiB;
constexpr int64_t kBoundMarginPercent = 25;

// A unit that could not be loaded.
class DamagedBlock final : public Block {
 public:
  DamagedBlock(std::string reason, std::string place)
      : reason_(std::move(reason)), place_(std::move(place)) {}
  void read(int64_t /*row*/, Row& /*cells*/) const override { throw DamagedError(reason_); }
  [[nodiscard]] std::string where(int64_t /*row*/) const override { return place_; }

 private:
  std::string reason_;
  std::string place_;
};

}  // namespace

ColumnNumbers::ColumnNumbers(std::span<const Column> columns, std::string where)
    : columns_(columns), where_(std::move(where)) {
  for (size_t i = 0; i < columns.size(); ++i) numbers_.emplace(columns[i].name, i);
}

size_t ColumnNumbers::of(const std::string& name) const {
  constexpr size_t kShown = 100;
  if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
  std::vector<std::string> names;
  for (const Column& column : columns_.first(std::min(columns_.size(), kShown)))
    names.push_back(formatted("'{}'", column.name));
  const std::string more =
      columns_.size() > kShown ? formatted(" and {} more", columns_.size() - kShown) : "";
  throw UsageError(formatted("{}: has no column '{}'; it has {}. Name the right ones with data.columns.",
                             where_, name, names.empty() ? "none" : join(names, ", ") + more));
}

const Column& find_column(std::span<const Column> columns, const std::string& name,
                          const std::string& where) {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
  return found == columns.end() ? ColumnNumbers(columns, where).at(name) : *found;
}

Dataset::Dataset() : pool_(std::make_shared<CappedMemoryPool>(std::numeric_limits<int64_t>::max())) {}
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&& other) noexcept {
  alone_ = std::move(other.alone_);
  held_ = std::move(other.held_);  // from the inside out: blocks and files before the pool they allocate from
  sources_ = std::move(other.sources_);
  pool_ = std::move(other.pool_);
  store_ = std::move(other.store_);
  units_ = std::move(other.units_);
  name_ = std::move(other.name_);
  rows_ = other.rows_;
  stored_rows_ = other.stored_rows_;
  on_error_ = other.on_error_;
  uses_arrow_ = other.uses_arrow_;
  return *this;
}
Dataset::~Dataset() = default;

Dataset Dataset::open(std::span<const fs::path> paths) {
  std::vector<WeightedPath> weighted;
  for (const fs::path& path : paths) weighted.push_back({path});
  return open(weighted);
}

Dataset Dataset::open(std::span<const WeightedPath> paths, RowErrors on_error, const TabText& tabs,
                      int64_t most_rows) {
  if (paths.empty()) throw UsageError("data: no file is named.");
  Dataset dataset;
  dataset.name_ = paths.front().path.string();
  dataset.on_error_ = on_error;
  int32_t number = 0;
  for (const auto& [path, weight] : paths) {
    for (const fs::path& file : data_files(path)) {
      dataset.uses_arrow_ = dataset.uses_arrow_ || is_arrow_format(file);
      dataset.sources_.push_back({open_data_file(file, *dataset.pool_, on_error, tabs, most_rows), number,
                                  weight, 0, file.string()});
    }
    ++number;
  }
  return dataset;
}

Dataset Dataset::again() const {
  Dataset dataset;
  dataset.name_ = name_;
  dataset.pool_ = pool_;
  dataset.sources_ = sources_;
  // The bytes of rows to be stored are measured again where that is asked for.
  for (Source& source : dataset.sources_) {
    source.value_bytes.reset();
    if (source.first_stored >= 0) source.value_bytes = source.file->stored_bytes();
  }
  dataset.units_ = units_;
  dataset.rows_ = rows_;
  dataset.stored_rows_ = stored_rows_;
  dataset.uses_arrow_ = uses_arrow_;
  dataset.on_error_ = on_error_;
  return dataset;
}

DataFile& Dataset::first_file() const {
  for (const Source& source : sources_)
    if (!source.file->columns().empty()) return *source.file;
  throw UsageError(name_ + ": has no rows.");
}

std::span<const Column> Dataset::columns() const { return first_file().columns(); }

ColumnBinding Dataset::bind(const std::function<ColumnBinding(std::span<const Column>)>& bind) {
  DataFile& file = first_file();
  std::exception_ptr problem;
  for (const std::vector<Column>& set : file.column_sets()) {
    try {
      ColumnBinding binding = bind(set);
      file.prefer(set);
      return binding;
    } catch (const UsageError&) {
      if (problem == nullptr) problem = std::current_exception();
    }
  }
  std::rethrow_exception(problem);
}

std::vector<Dataset> Dataset::files_with(const std::string& column) const {
  const auto has = [&](const std::vector<Column>& set) {
    return std::ranges::any_of(set, [&](const Column& one) { return one.name == column; });
  };
  std::vector<Dataset> found;
  for (const Source& source : sources_) {
    const auto sets = source.file->column_sets();
    const auto set = std::ranges::find_if(sets, has);
    if (set == sets.end()) continue;
    source.file->prefer(*set);
    Dataset file;
    file.name_ = source.path_name;
    file.pool_ = pool_;
    file.sources_ = {source};
    file.on_error_ = on_error_;
    file.uses_arrow_ = uses_arrow_;
    found.push_back(std::move(file));
  }
  return found;
}

void Dataset::select(std::span<const std::string> columns, ReadAs as) {
  held_.clear();
  alone_ = {};
  store_.reset();
  units_.clear();
  rows_ = stored_rows_ = 0;
  std::vector<Column> wanted;
  const std::set<std::string_view> names(columns.begin(), columns.end());
  for (const Column& column : this->columns())
    if (names.contains(column.name)) wanted.push_back(column);
  int32_t first_group = 0;
  for (Source& source : sources_) {
    source.first_unit = units_.size();
    source.file->prefer(wanted);
    source.first_row = rows_;
    int32_t groups = 0;
    for (const Unit& unit : source.file->select(columns, as)) {
      units_.push_back({{unit.rows, unit.bytes, first_group + unit.group, unit.longest},
                        rows_,
                        source.path,
                        source.weight});
      rows_ += unit.rows;
      groups = std::max(groups, unit.group + 1);
    }
    first_group += groups;
    source.rows = rows_ - source.first_row;
    choose_stored(source, columns, as);
  }
  if (rows_ == 0) throw UsageError(name_ + ": has no rows.");
}

void Dataset::hold(std::span<const size_t> units) {
  alone_ = {};
  const std::set<size_t> wanted(units.begin(), units.end());
  std::erase_if(held_, [&wanted](const auto& entry) { return !wanted.contains(entry.first); });
  for (const size_t unit : units) {
    if (!held_.contains(unit)) held_.emplace(unit, load(unit));
  }
}

std::unique_ptr<Block> Dataset::load(size_t unit) const {
  const auto next =
      std::upper_bound(sources_.begin(), sources_.end(), unit,
                       [](size_t index, const Source& source) { return index < source.first_unit; });
  const Source& source = *std::prev(next);
  try {
    return source.file->load(unit - source.first_unit);
  } catch (const DamagedError& error) {
    return std::make_unique<DamagedBlock>(error.what(), name_);
  }
}

const Dataset::Source& Dataset::source_of(int64_t row) const {
  const auto next =
      std::upper_bound(sources_.begin(), sources_.end(), row,
                       [](int64_t index, const Source& source) { return index < source.first_row; });
  return *std::prev(next);
}

// If a row by itself takes this long, training waits for a batch of them. A row store costs one pass over the
// file, and its bytes of disk.
void Dataset::choose_stored(Source& source, std::span<const std::string> columns, ReadAs as) {
  constexpr double kDear = 2e-3;
  source.first_stored = -1;
  source.columns.clear();
  source.value_bytes.reset();
  if (source.rows == 0 || source.file->row_cost().seconds <= kDear) return;
  for (const std::string& name : columns) {
    const Column& column = find_column(source.file->columns(), name, source.path_name);
    source.columns.push_back(as == ReadAs::json                ? StoredAs::json
                             : column.kind == ColumnKind::text ? StoredAs::text
                                                               : StoredAs::ids);
  }
  source.value_bytes = source.file->stored_bytes();
  source.first_stored = stored_rows_;
  stored_rows_ += source.rows;
}

RowsAlone Dataset::rows_alone() const {
  RowsAlone alone{.stored_rows = stored_rows_};
  int64_t value_bytes = 0;
  size_t columns = 0;
  for (const Source& source : sources_) {
    if (source.first_stored < 0) {
      const RowCost cost = source.rows > 0 ? source.file->row_cost() : RowCost{};
      alone.bytes = std::max(alone.bytes, cost.bytes);
      alone.seconds += cost.seconds * static_cast<double>(source.rows);
      continue;
    }
    columns = source.columns.size();
    alone.from_start = alone.from_start || source.file->reads_from_start();
    alone.exact = alone.exact && source.value_bytes.has_value();
    value_bytes += source.value_bytes.value_or(0);
    if (source.value_bytes) continue;
    for (const PlacedUnit& unit : units_of(source)) value_bytes += unit.bytes;
  }
  alone.store_bytes = row_store_bytes(stored_rows_, columns, value_bytes);
  return alone;
}

std::span<const PlacedUnit> Dataset::units_of(const Source& source) const {
  const size_t end = &source == &sources_.back() ? units_.size() : (&source + 1)->first_unit;
  return std::span(units_).subspan(source.first_unit, end - source.first_unit);
}

void Dataset::for_stored_rows(const Source& source, const std::function<void(const Row&)>& take,
                              const std::function<void(const std::string&)>& take_damaged) const {
  Row cells;
  for (const PlacedUnit& unit : units_of(source)) {
    const std::unique_ptr<Block> block = load(static_cast<size_t>(&unit - units_.data()));
    for (int64_t row = 0; row < unit.rows; ++row) {
      std::string reason;
      try {
        block->read(row, cells);
      } catch (const DamagedError& error) {
        reason = error.what();
      }
      if (reason.empty())
        take(cells);
      else
        take_damaged(reason);
    }
  }
}

void Dataset::measure_store() {
  held_.clear();
  for (Source& source : sources_) {
    if (source.first_stored < 0 || source.value_bytes) continue;
    int64_t bytes = 0;
    const auto add = [&](const Row& cells) { bytes += stored_value_bytes(cells, source.columns); };
    for_stored_rows(source, add, [](const std::string&) {});
    source.value_bytes = bytes;
  }
}

void Dataset::store_rows(const fs::path& folder, const std::function<void(int64_t, int64_t)>& progress) {
  constexpr int64_t kTold = 1024;  // rows
  if (stored_rows_ == 0 || store_ != nullptr) return;
  held_.clear();
  const RowsAlone alone = rows_alone();
  const std::string or_else = alone.from_start
                                  ? "unpack the .gz files of data.train (gunzip FILE): plain text needs no "
                                    "scratch file"
                                  : "shuffle in windows, which takes no disk: --set data.shuffle=window";
  auto store = std::make_unique<RowStore>(folder, stored_rows_, alone.store_bytes, or_else);
  int64_t done = 0;
  const auto count = [&] {
    if (progress && done++ % kTold == 0) progress(done - 1, stored_rows_);
  };
  for (const Source& source : sources_) {
    if (source.first_stored < 0) continue;
    for_stored_rows(
        source,
        [&](const Row& cells) {
          store->add(cells, source.columns);
          count();
        },
        [&](const std::string& reason) {
          store->add_damaged(reason);
          count();
        });
  }
  store->finish();
  if (progress) progress(stored_rows_, stored_rows_);
  store_ = std::move(store);
}

Dataset::Alone Dataset::load_alone(int64_t row) const {
  const Source& source = source_of(row);
  const int64_t of_file = row - source.first_row;
  try {
    if (source.first_stored >= 0) {
      check_internal(store_ != nullptr, "a row is asked of a row store that was not written");
      return {store_->load(source.first_stored + of_file, row_name(source.path_name, of_file)), row, 1};
    }
    RowPart part = source.file->load_row(of_file);
    return {std::move(part.block), source.first_row + part.first_row, part.rows};
  } catch (const DamagedError& error) {
    return {std::make_unique<DamagedBlock>(error.what(), name_), row, 1};
  }
}

void Dataset::hold_row(int64_t row) {
  if (alone_.block != nullptr && row >= alone_.first_row && row < alone_.first_row + alone_.rows) return;
  alone_ = {};  // before the next one is in memory
  alone_ = load_alone(row);
}

size_t Dataset::unit_of(int64_t row) const {
  const auto next =
      std::upper_bound(units_.begin(), units_.end(), row,
                       [](int64_t index, const PlacedUnit& unit) { return index < unit.first_row; });
  return static_cast<size_t>(std::prev(next) - units_.begin());
}

std::pair<const Block*, int64_t> Dataset::find(int64_t row) const {
  if (alone_.block != nullptr && row >= alone_.first_row && row < alone_.first_row + alone_.rows)
    return {alone_.block.get(), row - alone_.first_row};
  const size_t unit = unit_of(row);
  const auto block = held_.find(unit);
  check_internal(block != held_.end(), "a row was read whose unit is not held");
  return {block->second.get(), row - units_[unit].first_row};
}

void Dataset::read(int64_t row, Row& cells) const {
  const auto [block, local] = find(row);
  block->read(local, cells);
}

std::string Dataset::where(int64_t row) const {
  const auto [block, local] = find(row);
  return block->where(local);
}

int64_t Dataset::expected_bytes(int64_t held_bytes) const {
  if (!uses_arrow_) return held_bytes;
  // A small file has small pages: its decoding takes no more than a few times what comes out.
  return held_bytes + std::min(kExpectedDecodeBytes, kMiB + 2 * held_bytes);
}

int64_t Dataset::bound_bytes(int64_t held_bytes) const {
  if (!uses_arrow_) return held_bytes;
  return held_bytes + held_bytes * kBoundMarginPercent / 100 + kBoundDecodeBytes;
}

int64_t Dataset::index_bytes() const {
  constexpr int64_t kOfUnit = 1 * kKiB;       // in addition to an index of the file's own
  constexpr int64_t kLeastOfUnit = 4 * kKiB;  // with it
  int64_t bytes = 0;
  for (const Source& source : sources_) {
    const auto units = static_cast<int64_t>(units_of(source).size());
    bytes += std::max(units * kLeastOfUnit, units * kOfUnit + source.file->index_bytes());
  }
  return bytes;
}

void Dataset::limit_values(int64_t most) {
  for (const Source& source : sources_) source.file->limit_values(most);
}

void Dataset::cap_memory(int64_t held_bytes) { pool_->set_cap(bound_bytes(held_bytes)); }

int64_t Dataset::longest_row() const {
  int64_t longest = 0;
  for (const PlacedUnit& unit : units_) longest = std::max(longest, unit.longest);
  return longest;
}

int64_t Dataset::peak_arrow_bytes() const { return pool_->max_memory(); }

}  // namespace plimsoll
