#include "data/json_block.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "data/cell.h"
#include "io/json.h"

namespace plimsoll {
namespace {

using nlohmann::json;

ColumnKind kind_of(const json& value) {
  if (value.is_string()) return ColumnKind::text;
  if (value.is_primitive()) return ColumnKind::plain;
  const bool ids = value.is_array() && std::all_of(value.begin(), value.end(),
                                                   [](const json& id) { return id.is_number_integer(); });
  return ids ? ColumnKind::ids : ColumnKind::other;
}

void read_ids(const json& value, const std::string& column, const std::string& where,
              std::vector<int32_t>& ids) {
  ids.clear();
  for (const json& id : value) {
    // Numbers beyond int64 are stored unsigned: they fail the first test.
    const bool fits =
        id.is_number_integer() &&
        !(id.is_number_unsigned() && id.get<uint64_t>() > std::numeric_limits<int32_t>::max()) &&
        id.get<int64_t>() >= std::numeric_limits<int32_t>::min();
    if (!fits)
      throw DamagedError(where + ": '" + column + "' holds " + id.dump() + ", which is no token id.");
    ids.push_back(id.get<int32_t>());
  }
}

template <class Json>
void require_object(const Json& value, const std::string& where) {
  if (!value.is_object()) throw DamagedError(where + ": is " + describe_kind(value) + ", not an object.");
}

// The keys of a text's outermost object in their order; parsed objects have them sorted.
class OuterKeys final : public nlohmann::json_sax<json> {
 public:
  [[nodiscard]] const std::vector<std::string>& keys() const { return keys_; }
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*elements*/) override { return ++depth_ > 0; }
  bool key(string_t& name) override {
    if (depth_ == 1 && seen_.insert(name).second) keys_.push_back(name);
    return true;
  }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t /*elements*/) override { return ++depth_ > 0; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  int64_t depth_ = 0;
  std::vector<std::string> keys_;
  std::set<std::string> seen_;
};

// In the order in which the row has them: people read a proposal of columns in it.
std::vector<Column> columns_of_row(std::string_view object, const std::string& where) {
  const json row = parse_json(object, where);
  require_object(row, where);
  OuterKeys order;
  json::sax_parse(object, &order);
  std::vector<Column> columns;
  for (const std::string& name : order.keys()) {
    const json& value = row.at(name);
    columns.push_back({name, kind_of(value), describe_kind(value)});
  }
  return columns;
}

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
  const std::string here = where(row);
  const json object = parse_json(text_of(row), here);
  require_object(object, here);
  cells.resize(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    const auto value = object.find(column.name);
    if (value == object.end()) throw DamagedError(here + ": has no '" + column.name + "'.");
    if (column.kind == ColumnKind::text ? !value->is_string() : !value->is_array())
      throw DamagedError(here + ": '" + column.name + "' is " + describe_kind(*value) + ", " +
                         (column.kind == ColumnKind::text ? "a string" : "an array of token ids") +
                         " is expected.");
    if (column.kind == ColumnKind::text)
      cells[i].text = value->get_ref<const std::string&>();
    else
      read_ids(*value, column.name, here, cells[i].ids);
  }
}

void JsonBlock::read_json_cells(int64_t row, Row& cells) const {
  const std::string here = where(row);
  nlohmann::ordered_json object = parse_ordered_json(text_of(row), here);
  require_object(object, here);
  cells.resize(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto value = object.find(columns_[i].name);
    cells[i].json = value == object.end() ? nullptr : std::move(*value);
  }
}

std::string JsonBlock::where(int64_t row) const {
  const int64_t line = place_.first_line + rows_[static_cast<size_t>(row)].line;
  if (place_.name == RowName::line) return place_.path + ":" + std::to_string(line);
  return place_.path + ": row " + std::to_string(place_.first_row + row) + " (line " + std::to_string(line) +
         ")";
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
    return std::all_of(wanted.begin(), wanted.end(), [&](const Column& column) {
      return std::any_of(set.begin(), set.end(), [&](const Column& c) {
        return c.name == column.name && (!of_kind || c.kind == column.kind);
      });
    });
  };
  for (const bool of_kind : {true, false})
    for (chosen_ = 0; chosen_ < sets_.size(); ++chosen_)
      if (has_all(sets_[chosen_], of_kind)) return;
  chosen_ = 0;
}

}  // namespace plimsoll
