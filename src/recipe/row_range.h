// A range of the rows of a source, written as Python's slices: ":95%", "1000:", "-10%:".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace plimsoll {

struct RowRange {
  struct Bound {
    double value = 0;  // below 0: counted from the end
    bool is_percent = false;
    friend bool operator==(const Bound&, const Bound&) = default;
  };
  std::optional<Bound> first;
  std::optional<Bound> end;

  [[nodiscard]] bool is_all() const { return !first && !end; }
  // The rows [first, second) of so many, possibly none. A share is rounded to whole rows, half to even, as
  // the library datasets does.
  [[nodiscard]] std::pair<int64_t, int64_t> of(int64_t rows) const;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Reads "10%:20%"; nothing for a text that is not a range.
std::optional<RowRange> parse_row_range(std::string_view text);
std::string print_row_range(const RowRange& range);

}  // namespace plimsoll
