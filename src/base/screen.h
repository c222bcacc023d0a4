// The width and height of the output for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll {

struct ScreenSize {
  size_t columns = 80;  // at least 40
  size_t rows = 24;
  bool is_terminal = false;
};
// The size for a file descriptor: COLUMNS, else the terminal's size, else 80 columns.
ScreenSize screen_of(int descriptor);
// Standard output's columns.
size_t output_columns();

// Columns that a UTF-8 text takes on a terminal, every code point counted as one.
size_t columns_of(std::string_view text);

// The text with lines of at most `columns`, broken at blanks, best where several stand together. Further
// lines are indented as the text behind the line's first word. A number stays with its unit; commands to
// paste and words longer than a line stay whole.
std::string fitted(std::string_view text, size_t columns);
// The same where the descriptor is a terminal; else the text as it is.
std::string fitted_to_terminal(std::string_view text, int descriptor);

}  // namespace plimsoll
