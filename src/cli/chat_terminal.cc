#include "cli/chat_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;
int wake[2] = {-1, -1};  // a pipe: an interrupt just before a read, or on another thread, ends the read too

void on_interrupt(int) {
  const int saved = errno;
  interrupt_seen = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake[1], "", 1);
  errno = saved;
}

// False: an interrupt came first.
bool wait_for_input() {
  pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {wake[0], POLLIN, 0}};
  while (::poll(ready, 2, -1) < 0 && errno == EINTR) {
  }
  if (ready[1].revents == 0) return true;
  char byte = 0;
  return ::read(wake[0], &byte, 1) != 1;
}

}  // namespace

ChatTerminal::ChatTerminal() : interactive_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  if (::pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) throw StoppedError("no pipe for the terminal");
  sigaction(SIGINT, &action, nullptr);
}

ChatTerminal::~ChatTerminal() {
  signal(SIGINT, SIG_DFL);
  for (int& end : wake) ::close(std::exchange(end, -1));
}

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
    if (!wait_for_input()) {
      if (!interrupted()) continue;  // it ended an answer
      buffer_.clear();
      return Read::interrupted;
    }
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
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
