#include "cli/model/chat_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"

namespace plimsoll {
namespace {

constexpr size_t kMostLineBytes = size_t{16} << 20;
constexpr unsigned short kLeastColumns = 8;
// Pasted text comes between two marks (xterm's bracketed paste).
constexpr const char* kMarkPastes = "\033[?2004h";
constexpr const char* kDoNotMarkPastes = "\033[?2004l";

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

// Terminals that know no cursor movement call themselves dumb.
bool moves_cursor() {
  const char* name = std::getenv("TERM");
  return name != nullptr && std::string_view(name) != "dumb";
}

winsize terminal_size() {
  winsize size{};
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  if (size.ws_col < kLeastColumns) size.ws_col = 80;
  if (size.ws_row < 2) size.ws_row = 24;
  return size;
}

}  // namespace

ChatTerminal::ChatTerminal()
    : interactive_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1),
      editing_(interactive_ && moves_cursor() && tcgetattr(STDIN_FILENO, &usual_) == 0) {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  if (::pipe2(wake, O_CLOEXEC | O_NONBLOCK) != 0) throw StoppedError("no pipe for the terminal");
  sigaction(SIGINT, &action, nullptr);
  if (editing_) std::fputs(kMarkPastes, stdout);
}

ChatTerminal::~ChatTerminal() {
  if (editing_) std::fputs(kDoNotMarkPastes, stdout);
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
  if (!editing_) return read_plain(prompt, line);
  take_keys();
  const Read result = edit(prompt, line);
  leave_keys();
  return result;
}

void ChatTerminal::take_keys() {
  termios keys = usual_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  keys.c_cc[VMIN] = 1;
  keys.c_cc[VTIME] = 0;
  keys.c_cc[VSUSP] = _POSIX_VDISABLE;  // the line goes first
  tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
}

void ChatTerminal::leave_keys() { tcsetattr(STDIN_FILENO, TCSADRAIN, &usual_); }

ChatTerminal::Read ChatTerminal::edit(const char* prompt, std::string& line) {
  line_.begin();
  shown_ = {};
  for (;;) {
    const auto event = take_buffer();
    draw(prompt, event.has_value() && *event != LineEditor::Event::suspended);
    if (event == LineEditor::Event::entered) {
      print("\n");
      line = line_.text();
      line_.remember(line);
      return Read::line;
    }
    if (event == LineEditor::Event::ended) return Read::end;
    if (event == LineEditor::Event::suspended) {
      suspend();
      continue;
    }
    char bytes[4096];
    if (!wait_for_input()) {
      if (!interrupted()) continue;  // it ended an answer
      draw(prompt, true);
      return Read::interrupted;
    }
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Read::end;
    buffer_.append(bytes, static_cast<size_t>(count));
  }
}

std::optional<LineEditor::Event> ChatTerminal::take_buffer() {
  for (size_t i = 0; i < buffer_.size(); ++i) {
    const LineEditor::Event event = line_.take(buffer_[i]);
    if (event == LineEditor::Event::edited) continue;
    buffer_.erase(0, i + 1);
    return event;
  }
  buffer_.clear();
  return std::nullopt;
}

// A line higher than the terminal is shown in parts, and whole when it is finished.
void ChatTerminal::draw(const char* prompt, bool finished) {
  const winsize size = terminal_size();
  std::string out;
  if (!shown_.rows.empty()) {
    // A terminal that became narrower has broken the rows that were drawn.
    size_t above = shown_.cursor_column / size.ws_col;
    for (size_t i = 0; i < shown_.cursor_row; ++i)
      above += std::max<size_t>(1, (shown_.rows[i].columns + size.ws_col - 1) / size.ws_col);
    if (above > 0) out += formatted("\033[{}A", above);
    out += "\r\033[J";
  }
  LineRows rows = lay_out(prompt, line_, size.ws_col);
  if (!finished) {
    const size_t most = size.ws_row - 1U;
    const size_t first = rows.cursor_row < most ? 0 : rows.cursor_row + 1 - most;
    rows.rows.erase(rows.rows.begin(), rows.rows.begin() + static_cast<std::ptrdiff_t>(first));
    rows.rows.resize(std::min(rows.rows.size(), most));
    rows.cursor_row -= first;
  }
  for (size_t i = 0; i < rows.rows.size(); ++i) out += (i > 0 ? "\n" : "") + rows.rows[i].text;
  const size_t below = rows.rows.size() - 1 - rows.cursor_row;
  if (!finished && below > 0) out += formatted("\033[{}A", below);
  if (!finished && (below > 0 || rows.cursor_column != rows.rows.back().columns)) {
    out += "\r";
    if (rows.cursor_column > 0) out += formatted("\033[{}C", rows.cursor_column);
  }
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
  shown_ = std::move(rows);
}

void ChatTerminal::suspend() {
  leave_keys();
  std::fprintf(stdout, "%s\n", kDoNotMarkPastes);
  std::fflush(stdout);
  raise(SIGTSTP);
  take_keys();
  std::fputs(kMarkPastes, stdout);
  shown_ = {};
}

ChatTerminal::Read ChatTerminal::read_plain(const char* prompt, std::string& line) {
  if (interactive_) {
    print(prompt);
    flush_output();
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
      if (buffer_.size() > kMostLineBytes)
        throw UsageError("chat: a line of standard input has more than 16 MiB");
      continue;
    }
    line = std::move(buffer_);  // a last line without an end
    buffer_.clear();
    return line.empty() ? Read::end : Read::line;
  }
}

}  // namespace plimsoll
