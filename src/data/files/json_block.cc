#include "data/files/json_block.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/growth.h"
#include "data/files/cell.h"
#include "files/json.h"
#include "files/json_values.h"
#include "files/long_strings.h"

namespace plimsoll {
namespace {

using nlohmann::json;

// Goes through a row's text and reports what stands directly in its object, value by value; of what is deeper
// only where it begins and ends. It keeps nothing, so that a row takes what its reader keeps and no more.
class OuterVisitor : public nlohmann::json_sax<json> {
 public:
  explicit OuterVisitor(std::string where) : where_(std::move(where)) {}

  void visit(std::string_view text) { parse_sparingly(text, *this); }
  [[nodiscard]] const std::string& where() const { return where_; }

  bool null() override { return value(nullptr); }
  bool boolean(bool flag) override { return value(flag); }
  bool number_integer(number_integer_t number) override { return value(number); }
  bool number_unsigned(number_unsigned_t number) override { return value(number); }
  bool number_float(number_float_t number, const string_t& /*text*/) override { return value(number); }
  bool string(string_t& text) override {
    if (depth_ == 1)
      on_text(text);
    else
      value(text);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override { return open(json::value_t::object); }
  bool start_array(size_t /*elements*/) override { return open(json::value_t::array); }
  bool key(string_t& name) override {
    if (depth_ == 1) on_key(name);
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    const std::string reason = reason_of(error);
    // A file of old programs, in which accents are single bytes.
    const char* const how = reason.find("UTF-8") == std::string::npos
                                ? ""
                                : " The file is in another encoding; iconv -f LATIN1 -t UTF-8 FILE > NEW "
                                  "makes it UTF-8, where it is Latin-1.";
    throw DamagedError(formatted("{}: is not valid JSON: {}.{}", where_, reason, how));
  }

 protected:
  virtual void on_key(const std::string& name) = 0;
  // It may take over the text.
  virtual void on_text(std::string& text) = 0;
  // A value that is no text; an object or array is empty here.
  virtual void on_value(const json& value) = 0;
  // A value directly in such an array.
  virtual void on_item(const json& item) = 0;

 private:
  template <class Value>
  bool value(const Value& value) {
    if (depth_ == 0) refuse_outer(json(value));
    if (depth_ == 1) on_value(json(value));
    if (depth_ == 2 && in_array_) on_item(json(value));
    return true;
  }
  bool open(json::value_t type) {
    constexpr int64_t kDeepest = JsonLimits{}.max_depth;
    if (depth_ == 0 && type == json::value_t::array) refuse_outer(json::array());
    if (++depth_ > kDeepest)
      throw DamagedError(formatted("{}: is nested deeper than {} levels.", where_, kDeepest));
    if (depth_ == 2) {
      in_array_ = type == json::value_t::array;
      on_value(json(type));
    }
    if (depth_ == 3 && in_array_) on_item(json(type));
    return true;
  }
  [[noreturn]] void refuse_outer(const json& value) const {
    throw DamagedError(formatted("{}: is {}, not an object.", where_, describe_kind(value)));
  }

  std::string where_;
  int64_t depth_ = 0;
  bool in_array_ = false;  // directly in the object
};

// Finds a row's columns in the order in which the row has them: people read a proposal of columns in it. Of a
// key that comes twice the last value counts.
class ColumnFinder final : public OuterVisitor {
 public:
  using OuterVisitor::OuterVisitor;
  std::vector<Column> take() { return std::move(columns_); }

 private:
  void on_key(const std::string& name) override {
    constexpr size_t kMost = JsonLimits{}.max_keys;  // their names would take more than the row's text
    if (columns_.size() == kMost && !numbers_.contains(name))
      throw DamagedError(
          formatted("{}: has an object of more than {} keys.", where(), format_count(int64_t{kMost})));
    const auto [found, added] = numbers_.emplace(name, columns_.size());
    if (added) columns_.push_back({name, ColumnKind::other, ""});
    current_ = found->second;
  }
  void on_text(std::string& text) override { set(ColumnKind::text, json(text.substr(0, 0))); }
  void on_value(const json& value) override {
    set(value.is_primitive() ? ColumnKind::plain
        : value.is_array()   ? ColumnKind::ids
                             : ColumnKind::other,
        value);
  }
  void on_item(const json& item) override {
    if (!item.is_number_integer()) columns_[current_].kind = ColumnKind::other;
  }
  void set(ColumnKind kind, const json& value) {
    columns_[current_].kind = kind;
    columns_[current_].type = describe_kind(value);
  }

  std::vector<Column> columns_;
  std::map<std::string, size_t> numbers_;
  size_t current_ = 0;
};

std::vector<Column> columns_of_row(std::string_view object, const std::string& where) {
  ColumnFinder finder(where);
  finder.visit(object);
  return finder.take();
}

// Reads texts and lists of ids into a row's cells. Faults of a column are reported at the end, as a key may
// come again.
class KindReader final : public OuterVisitor {
 public:
  KindReader(std::span<const Column> columns, std::string where, Row& cells)
      : OuterVisitor(std::move(where)), columns_(columns), cells_(cells), problems_(columns.size()) {
    cells.resize(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      numbers_.emplace(columns[i].name, i);
      problems_[i] = formatted("has no '{}'.", columns[i].name);
    }
  }
  void require_whole() const {
    for (const std::string& problem : problems_)
      if (!problem.empty()) throw DamagedError(formatted("{}: {}", where(), problem));
  }

 private:
  void on_key(const std::string& name) override {
    const auto found = numbers_.find(name);
    current_ = found == numbers_.end() ? columns_.size() : found->second;
    if (is_read()) problems_[current_].clear();
  }
  void on_text(std::string& text) override {
    if (!is_read()) return;
    std::string& cell = cells_[current_].text;
    if (columns_[current_].kind == ColumnKind::text)
      cell = text.size() < kLongString ? text : std::move(text);
    else
      refuse_kind(json(text.substr(0, 0)));
  }
  void on_value(const json& value) override {
    if (!is_read()) return;
    cells_[current_].ids.clear();
    if (columns_[current_].kind == ColumnKind::text || !value.is_array()) refuse_kind(value);
  }
  void on_item(const json& item) override {
    if (!is_read() || columns_[current_].kind == ColumnKind::text) return;
    std::vector<int32_t>& ids = cells_[current_].ids;
    reserve_more(ids, 1);
    if (is_id(item))
      ids.push_back(item.get<int32_t>());
    else if (problems_[current_].empty())
      problems_[current_] = formatted("'{}' holds {}, which is no token id.", columns_[current_].name,
                                      item.is_structured() ? describe_kind(item) : item.dump().substr(0, 40));
  }
  // Numbers beyond int64 are stored unsigned: they fail the first test.
  static bool is_id(const json& item) {
    return item.is_number_integer() &&
           !(item.is_number_unsigned() && item.get<uint64_t>() > std::numeric_limits<int32_t>::max()) &&
           item.get<int64_t>() >= std::numeric_limits<int32_t>::min();
  }
  void refuse_kind(const json& value) {
    const Column& column = columns_[current_];
    problems_[current_] = formatted("'{}' is {}, {} is expected.", column.name, describe_kind(value),
                                    column.kind == ColumnKind::text ? "a string" : "an array of token ids");
  }
  [[nodiscard]] bool is_read() const { return current_ < columns_.size(); }

  std::span<const Column> columns_;
  Row& cells_;
  std::vector<std::string> problems_;  // of each column; empty: none
  std::map<std::string_view, size_t> numbers_;
  size_t current_ = std::numeric_limits<size_t>::max();
};

// In an order that does not depend on how a row was written.
std::vector<const Column*> by_name(const std::vector<Column>& columns) {
  std::vector<const Column*> sorted;
  for (const Column& column : columns) sorted.push_back(&column);
  std::ranges::sort(sorted, {}, [](const Column* column) -> const std::string& { return column->name; });
  return sorted;
}

}  // namespace

std::string_view JsonBlock::text_of(int64_t row) const {
  const JsonRow& place = rows_[static_cast<size_t>(row)];
  return std::string_view(text_).substr(place.start, place.length);
}

void JsonBlock::read(int64_t row, Row& cells) const {
  if (as_ == ReadAs::json) return read_json_cells(row, cells);
  KindReader reader(columns_, where(row), cells);
  reader.visit(text_of(row));
  reader.require_whole();
}

void JsonBlock::read_json_cells(int64_t row, Row& cells) const {
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  auto values = parse_members(text_of(row), names, where(row), {.max_values = most_values_});
  cells.resize(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) cells[i].json = std::move(values[i]);
}

std::string JsonBlock::where(int64_t row) const {
  const int64_t line = place_.first_line + rows_[static_cast<size_t>(row)].line;
  if (place_.name == RowName::line) return formatted("{}:{}", place_.path, line);
  return formatted("{}: row {} (line {})", place_.path, place_.first_row + row, line);
}

void ColumnSets::read(std::string_view text, std::span<const JsonRow> rows, RowErrors on_error,
                      const std::function<std::string(size_t row)>& where) {
  constexpr size_t kLookedAt = 64;  // rows, of those that come with the file's first
  std::exception_ptr problem;
  for (size_t i = 0; i < rows.size() && (i < kLookedAt || sets_.empty()); ++i) {
    try {
      add(columns_of_row(text.substr(rows[i].start, rows[i].length), where(i)));
    } catch (const DamagedError&) {
      if (problem == nullptr) problem = std::current_exception();
      if (i == 0 && on_error == RowErrors::stop) break;
    }
  }
  if (sets_.empty() && problem != nullptr) std::rethrow_exception(problem);
}

void ColumnSets::add(std::vector<Column> columns) {
  if (columns.empty()) return;  // {}
  const auto same = [](const Column* a, const Column* b) { return a->name == b->name && a->kind == b->kind; };
  const std::vector<const Column*> sorted = by_name(columns);
  for (const std::vector<Column>& set : sets_)
    if (std::ranges::equal(by_name(set), sorted, same)) return;
  sets_.push_back(std::move(columns));
}

void ColumnSets::prefer(std::span<const Column> wanted) {
  const auto has_all = [&](const std::vector<Column>& set, bool of_kind) {
    std::map<std::string_view, ColumnKind> kinds;
    for (const Column& column : set) kinds.emplace(column.name, column.kind);
    return std::all_of(wanted.begin(), wanted.end(), [&](const Column& column) {
      const auto found = kinds.find(column.name);
      return found != kinds.end() && (!of_kind || found->second == column.kind);
    });
  };
  for (const bool of_kind : {true, false})
    for (chosen_ = 0; chosen_ < sets_.size(); ++chosen_)
      if (has_all(sets_[chosen_], of_kind)) return;
  chosen_ = 0;
}

}  // namespace plimsoll
