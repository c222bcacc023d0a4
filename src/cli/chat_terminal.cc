#include "cli/chat_terminal.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace plimsoll {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

}  // namespace

ChatTerminal::ChatTerminal() : interactive_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupt_seen = 1; };  // no SA_RESTART: a read in progress ends
  sigaction(SIGINT, &action, nullptr);
}

ChatTerminal::~ChatTerminal() { signal(SIGINT, SIG_DFL); }

bool ChatTerminal::interrupted() {
  const bool seen = interrupt_seen != 0;
  interrupt_seen = 0;
  return seen;
}

ChatTerminal::Read ChatTerminal::read(const char* prompt, std::string& line) {
  line.clear();
  for (;;) {
    std::string piece;
    const Read result = read_piece(line.empty() ? prompt : ". ", piece);
    if (result == Read::interrupted || (result == Read::end && line.empty())) return result;
    const bool goes_on = result == Read::line && piece.ends_with('\\');
    if (goes_on) piece.back() = '\n';
    line += piece;
    if (!goes_on) return Read::line;
  }
}

ChatTerminal::Read ChatTerminal::read_piece(const char* prompt, std::string& line) {
  if (interactive_) {
    std::fputs(prompt, stdout);
    std::fflush(stdout);
  }
  for (;;) {
    const size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return Read::line;
    }
    char bytes[4096];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) {
      if (!interrupted()) continue;
      buffer_.clear();
      return Read::interrupted;
    }
    if (count > 0) {
      buffer_.append(bytes, static_cast<size_t>(count));
      continue;
    }
    line = std::move(buffer_);  // a last line without an end
    buffer_.clear();
    return line.empty() ? Read::end : Read::line;
  }
}

}  // namespace plimsoll
