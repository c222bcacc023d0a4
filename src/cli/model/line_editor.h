// A message while it is typed: its text, the cursor, what keys do to them, and earlier messages. Knows the
// bytes that terminals send for keys, and nothing else of terminals. Not a library's: libedit splits a paste
// into messages and reads a data base of terminals, which a relocated program may not find; readline's
// licence would become the program's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

class LineEditor {
 public:
  enum class Event : unsigned char { edited, entered, ended, suspended };

  // Empties the line; what was remembered stays.
  void begin();
  // One byte from the terminal. Bytes of a character or of a key that are not complete yet are kept.
  Event take(char byte);
  // A line to be found again with the arrow up.
  void remember(const std::string& line);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] size_t cursor() const { return cursor_; }  // a byte of text(), or its end

 private:
  Event take_control(char byte);
  void take_sequence();
  void take_text(char byte);
  void insert(std::string_view piece);
  void erase(size_t begin, size_t end);
  void recall(size_t index);
  void go_back() { recall(place_ - (place_ > 0 ? 1 : 0)); }
  void go_on() { recall(place_ + 1); }

  [[nodiscard]] size_t before() const;  // where the character before the cursor starts
  [[nodiscard]] size_t after() const;   // where the one at the cursor ends
  [[nodiscard]] size_t word_before() const;
  [[nodiscard]] size_t word_after() const;

  std::string text_;
  size_t cursor_ = 0;
  std::string pending_;  // an incomplete character, or a key that begins with Escape
  bool pasting_ = false;
  std::vector<std::string> lines_;
  size_t place_ = 0;   // in lines_; its size: the new line
  std::string draft_;  // the new line while an earlier one is shown
};

// The place of a line on a terminal, in rows.
struct LineRows {
  struct Row {
    std::string text;
    size_t columns = 0;
  };
  std::vector<Row> rows;
  size_t cursor_row = 0, cursor_column = 0;
};

// `prompt` is ASCII, shorter than `width`; further lines of the text are as far right.
LineRows lay_out(std::string_view prompt, const LineEditor& line, size_t width);

}  // namespace plimsoll
