#include "train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/units.h"

namespace plimsoll {
namespace {

constexpr int kBar = 28;
// "█" and "░" take three bytes each.
using BarText = std::array<char, kBar * 3 + 1>;

void fill_bar(BarText& text, double share) {
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kBar + 0.5);
  size_t at = 0;
  for (int i = 0; i < kBar; ++i)
    for (const char* c = i < filled ? "█" : "░"; *c != '\0'; ++c) text[at++] = *c;
  text[at] = '\0';
}

int terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(bool quiet, int64_t every)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), every_(std::max<int64_t>(1, every)) {
  start_ = last_draw_ = std::chrono::steady_clock::now();
}

void Progress::event(const std::string& line) {
  if (quiet_) return;
  std::fprintf(stderr, "%s%s\n", line_open_ ? "\r\033[K" : "", line.c_str());
  line_open_ = false;
}

void Progress::loading(int64_t done, int64_t total) {
  if (quiet_ || !terminal_ || total == 0) return;
  BarText bar{};
  fill_bar(bar, static_cast<double>(done) / static_cast<double>(total));
  std::fprintf(stderr, "\r\033[Kload    weights %s %.2f of %.2f GiB", bar.data(),
               static_cast<double>(done) / static_cast<double>(kGiB),
               static_cast<double>(total) / static_cast<double>(kGiB));
  line_open_ = true;
  if (done == total) {
    std::fprintf(stderr, "\n");
    line_open_ = false;
  }
  start_ = std::chrono::steady_clock::now();
}

void Progress::update(const ProgressState& state) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  if (first_step_ < 0) {
    first_step_ = state.step - 1;
    start_ = now;
  }
  if (!terminal_) {
    if (state.step % every_ == 0 || state.step == state.total) draw(state);
    return;
  }
  if (now - last_draw_ < std::chrono::milliseconds(100) && state.step != state.total) return;
  last_draw_ = now;
  draw(state);
}

void Progress::draw(const ProgressState& state) {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  const auto done = static_cast<double>(state.step - first_step_ - 1);
  const double eta = done > 0 ? spent.count() / done * static_cast<double>(state.total - state.step) : 0.0;
  const auto minutes = static_cast<long>(eta) / 60;
  const auto seconds = static_cast<long>(eta) % 60;
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "%lld/%lld  loss %.4f  lr %.2e  %.0f tok/s  data %.0f %%  eta %ld:%02ld  mem %.2f GiB",
                static_cast<long long>(state.step), static_cast<long long>(state.total), state.loss,
                state.learning_rate, state.tokens_per_second, state.data_wait_share * 100.0, minutes, seconds,
                static_cast<double>(state.memory_bytes) / static_cast<double>(kGiB));
  if (!terminal_) {
    std::fprintf(stderr, "train   %s\n", text.data());
    return;
  }
  constexpr int kAround = 8 + kBar + 2 + 90;  // the bar is left out where the terminal is narrow
  BarText bar{};
  if (terminal_width() >= kAround)
    fill_bar(bar, static_cast<double>(state.step) / static_cast<double>(state.total));
  std::fprintf(stderr, "\r\033[Ktrain   %s%s%.*s", bar.data(), bar[0] == '\0' ? "" : "  ",
               std::max(20, terminal_width() - 10), text.data());
  std::fflush(stderr);
  line_open_ = true;
}

void Progress::finish() {
  if (line_open_) std::fprintf(stderr, "\n");
  line_open_ = false;
}

}  // namespace plimsoll
