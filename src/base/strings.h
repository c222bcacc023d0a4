// Small text helpers: suggestions for misspelt names, aligned tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

// Damerau-Levenshtein (adjacent transpositions count one), or `limit` (at least 1) where it is no less.
int edit_distance(std::string_view a, std::string_view b, int limit);

// The candidate nearest to `word`, or "" when none is near enough to be what was meant.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);
// " (did you mean 'x'?)" with that candidate, or `otherwise`.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates,
                         std::string_view otherwise = "");

std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// With a to z for A to Z.
std::string in_small_letters(std::string_view text);

// `text` in lines of at most `width` columns, broken at blanks; all but the first start with `indent`, which
// counts, as if the first one had it too.
std::string wrap(std::string_view text, std::string_view indent, size_t width);

// The text, or its beginning with "…" behind it where it is wider than `columns` (at least 1).
std::string cut_text(std::string_view text, size_t columns);

// A table whose columns align; `right` names the columns set flush right. Rows may be shorter than others.
class TextTable {
 public:
  explicit TextTable(std::vector<bool> right = {}) : right_(std::move(right)) {}
  // A cell is one line, whatever its text is.
  void add_row(std::vector<std::string> cells);
  // Every line starts with `indent` and ends with a newline; no trailing blanks. Where it would be wider than
  // `width`, columns that may go are left out, and texts are broken into lines of their column.
  [[nodiscard]] std::string render(std::string_view indent = "", size_t width = SIZE_MAX) const;
  // Columns, from 0, that are left out where there is no room for them: the first of them first.
  void may_go(std::vector<size_t> columns) { may_go_ = std::move(columns); }
  // Texts that do not fit are cut, "like th…", instead of being broken into lines.
  void cut_texts() { cuts_ = true; }

 private:
  [[nodiscard]] std::vector<size_t> natural_widths() const;
  [[nodiscard]] TextTable without(size_t column) const;
  void add_lines(const std::vector<std::string>& row, const std::vector<size_t>& widths,
                 std::string_view indent, std::string& text) const;

  std::vector<bool> right_;
  std::vector<size_t> may_go_;
  bool cuts_ = false;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace plimsoll
