// Reads lines from a terminal or a pipe, and handles Ctrl-C.
#pragma once

#include <termios.h>

#include <optional>
#include <string>

#include "cli/model/line_editor.h"

namespace plimsoll {

// One at a time in a process: it holds the handler of SIGINT, which ends nothing while it lives.
class ChatTerminal {
 public:
  ChatTerminal();
  ChatTerminal(const ChatTerminal&) = delete;
  ChatTerminal& operator=(const ChatTerminal&) = delete;
  ~ChatTerminal();

  // True if input and output are both terminals.
  [[nodiscard]] bool interactive() const { return interactive_; }

  enum class Read : unsigned char { line, end, interrupted };
  // The next line without its end, after `prompt` (ASCII) where the terminal is interactive; there it may be
  // edited, and what is pasted is one line whatever its line ends. A line that ends with a backslash
  // continues in the next one.
  Read read(const char* prompt, std::string& line);
  // Returns true if Ctrl-C was pressed since the last call.
  bool interrupted();

 private:
  Read read_piece(const char* prompt, std::string& line);
  Read read_plain(const char* prompt, std::string& line);
  Read edit(const char* prompt, std::string& line);
  // The event that ended the line; none: all of the buffer is taken.
  std::optional<LineEditor::Event> take_buffer();
  // Draws the line and leaves the cursor in it, or behind it where it is finished.
  void draw(const char* prompt, bool finished);
  void suspend();
  void take_keys();   // from now on every key comes at once, and is not shown
  void leave_keys();  // lines again

  bool interactive_;
  termios usual_{};     // before editing_, which fills it
  bool editing_;        // interactive, and the terminal knows cursor movements
  std::string buffer_;  // read, not yet used
  LineEditor line_;
  LineRows shown_;  // down to the cursor
};

}  // namespace plimsoll
