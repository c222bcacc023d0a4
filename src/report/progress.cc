#include "report/progress.h"
#include "base/print.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace plimsoll {
namespace {

using Buffer = std::array<char, 512>;
constexpr int64_t kLasting = 10;

// Terminals that know no cursor movement call themselves dumb.
bool is_terminal() {
  const char* name = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && !(name != nullptr && std::string_view(name) == "dumb");
}

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// A cursor behind the last column would break the line.
int usable(int width) { return std::max(1, width - 1); }

}  // namespace

Progress::Progress(LogLevel level, int64_t every)
    : level_(level), terminal_(is_terminal()), every_(std::max<int64_t>(1, every)) {
  start_ = last_draw_ = std::chrono::steady_clock::now();
}

void Progress::clear_line(int width) {
  if (open_columns_ == 0) return;
  const int rows_above = (open_columns_ - 1) / width;
  if (rows_above > 0) {
    std::fprintf(stderr, "\r\033[%dA\033[J", rows_above);
  } else {
    std::fprintf(stderr, "\r\033[K");
  }
  open_columns_ = 0;
}

void Progress::show(const char* text, const FittedLine& line, int width) {
  clear_line(width);
  std::fprintf(stderr, "%.*s", static_cast<int>(line.bytes), text);
  std::fflush(stderr);
  open_columns_ = line.columns;
}

void Progress::line_of(const std::string& line, LogLevel) {
  clear_line(terminal_ ? terminal_width() : 1);
  say(line);
}

void Progress::loading(int64_t done, int64_t total) {
  if (!hears(LogLevel::info) || !terminal_ || total == 0) return;
  const int width = terminal_width();
  Buffer text;
  show(text.data(), loading_line(done, total, usable(width), text), width);
  if (done == total) steps_end();
}

void Progress::counting(int64_t done, int64_t total) {
  if (!hears(LogLevel::info) || !terminal_) return;
  const int width = terminal_width();
  Buffer text;
  show(text.data(), rows_line("rows    how long they are ", done, total, usable(width), text), width);
  if (done == total) steps_end();
}

void Progress::storing(int64_t done, int64_t total) {
  if (!hears(LogLevel::info) || !terminal_) return;
  const int width = terminal_width();
  Buffer text;
  show(text.data(), rows_line("rows    to the scratch file ", done, total, usable(width), text), width);
  if (done == total) steps_end();
}

void Progress::answering(int64_t done, int64_t total) {
  if (!hears(LogLevel::info) || !terminal_) return;
  std::fprintf(stderr, "\r\033[Kgenerate  %lld/%lld%s", static_cast<long long>(done),
               static_cast<long long>(total), done == total ? "\r\033[K" : "");
}

void Progress::step(const StepProgress& given) {
  StepProgress state = given;
  if (!hears(LogLevel::info)) return;
  const auto now = std::chrono::steady_clock::now();
  if (first_step_ < 0) {
    first_step_ = state.step;
    start_ = now;
  }
  const auto done = static_cast<double>(state.step - first_step_);
  const double spent = std::chrono::duration<double>(now - start_).count();
  if (done > 0) state.seconds_left = spent / done * static_cast<double>(state.total - state.step);
  const bool last = state.step == state.total;
  // Ten lines of the bar stay as the run's history.
  const bool stays = state.step * kLasting / state.total > (state.step - 1) * kLasting / state.total;
  Buffer text;
  if (!terminal_) {
    if (state.step % every_ != 0 && !last) return;
    // A terminal without cursor movement breaks lines that are too long for it; a file takes all.
    const int width = isatty(STDERR_FILENO) == 1 ? terminal_width() : 0;
    const FittedLine line = progress_line(state, width, text, ProgressBar::none);
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.bytes), text.data());
    return;
  }
  if (now - last_draw_ < std::chrono::milliseconds(100) && !stays) return;
  last_draw_ = now;
  const int width = terminal_width();
  show(text.data(), progress_line(state, usable(width), text), width);
  if (stays) steps_end();
}

void Progress::steps_end() {
  if (open_columns_ > 0) std::fprintf(stderr, "\n");
  open_columns_ = 0;
}

void Progress::result(std::string_view text) { print(text); }

}  // namespace plimsoll
