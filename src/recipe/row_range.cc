#include "recipe/row_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {
namespace {

constexpr double kMostRows = 9e15;  // whole numbers up to it are exact

std::optional<RowRange::Bound> parse_bound(std::string_view text) {
  RowRange::Bound bound;
  bound.is_percent = text.ends_with('%');
  if (bound.is_percent) text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound.value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const double most = bound.is_percent ? 100.0 : kMostRows;
  if (!(std::fabs(bound.value) <= most)) return std::nullopt;
  if (!bound.is_percent && std::floor(bound.value) != bound.value) return std::nullopt;
  return bound;
}

int64_t row_of(const RowRange::Bound& bound, int64_t rows) {
  const double at =
      bound.is_percent ? std::nearbyint(bound.value * static_cast<double>(rows) / 100.0) : bound.value;
  const auto row = static_cast<int64_t>(at);
  return std::clamp<int64_t>(row < 0 ? rows + row : row, 0, rows);
}

std::string print_bound(const std::optional<RowRange::Bound>& bound) {
  if (!bound) return "";
  char buffer[40];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, bound->value, std::chars_format::fixed).ptr;
  return std::string(static_cast<const char*>(buffer), end) + (bound->is_percent ? "%" : "");
}

}  // namespace

std::pair<int64_t, int64_t> RowRange::of(int64_t rows) const {
  const int64_t from = first ? row_of(*first, rows) : 0;
  const int64_t to = end ? row_of(*end, rows) : rows;
  return {from, std::max(from, to)};
}

std::optional<RowRange> parse_row_range(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos)
    return std::nullopt;
  RowRange range;
  const std::string_view first = trim(text.substr(0, colon));
  const std::string_view end = trim(text.substr(colon + 1));
  if (!first.empty() && !(range.first = parse_bound(first))) return std::nullopt;
  if (!end.empty() && !(range.end = parse_bound(end))) return std::nullopt;
  return range;
}

std::string print_row_range(const RowRange& range) {
  return formatted("{}:{}", print_bound(range.first), print_bound(range.end));
}

}  // namespace plimsoll
