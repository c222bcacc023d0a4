// Lines that somebody types, and Ctrl-C.
#pragma once

#include <string>

namespace plimsoll {

// One at a time in a process: it holds the handler of SIGINT, which ends nothing while it lives.
class ChatTerminal {
 public:
  ChatTerminal();
  ChatTerminal(const ChatTerminal&) = delete;
  ChatTerminal& operator=(const ChatTerminal&) = delete;
  ~ChatTerminal();

  // Whether somebody sits at both ends.
  [[nodiscard]] bool interactive() const { return interactive_; }

  enum class Read : unsigned char { line, end, interrupted };
  // The next line without its end, after `prompt` where the terminal is interactive. A line that ends with a
  // backslash goes on in the next one.
  Read read(const char* prompt, std::string& line);
  // Whether Ctrl-C was pressed since the last call.
  bool interrupted();

 private:
  Read read_piece(const char* prompt, std::string& line);

  bool interactive_;
  std::string buffer_;  // read, not yet used
};

}  // namespace plimsoll
