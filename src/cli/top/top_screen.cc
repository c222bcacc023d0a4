#include "cli/top/top_screen.h"

#define NCURSES_NOMACROS 1
#include <curses.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <cwchar>
#include <deque>

#include "base/error.h"
#include "base/format.h"
#include "base/print.h"
#include "base/screen.h"
#include "base/strings.h"
#include "base/units.h"
#include "train/run_signals.h"

namespace plimsoll {
namespace {

using top::Frame;
using top::RunStatus;

constexpr int kTickMilliseconds = 100;
constexpr size_t kHistory = 240;
constexpr int kRunsBeforeBars = 5;
constexpr int kEscape = 27;
constexpr int kControlL = 12;

// Orders of the list, by what `s` goes through.
struct Order {
  const char* title;  // of the column
  double (*value)(const RunStatus&);
};
constexpr double kUnknown = -1;
constexpr std::array kOrders = {
    Order{"id", [](const RunStatus& run) { return static_cast<double>(run.id); }},
    Order{"used", [](const RunStatus& run) { return static_cast<double>(run.used.value_or(-1)); }},
    Order{"planned", [](const RunStatus& run) { return static_cast<double>(run.reserved); }},
    Order{"cpu", [](const RunStatus& run) { return run.cores.value_or(kUnknown); }},
    Order{"s/step",
          [](const RunStatus& run) {
            return run.progress && run.progress->step_seconds ? *run.progress->step_seconds : kUnknown;
          }},
    Order{"left", [](const RunStatus& run) { return top::seconds_left(run).value_or(kUnknown); }}};

class Screen {
 public:
  explicit Screen(const ScreenSource& source) : source_(source) {
    std::setlocale(LC_CTYPE, "");
    terminal_ = newterm(nullptr, stdout, stdin);
    if (terminal_ == nullptr)
      throw UsageError("this terminal is not known (TERM): plimsoll top --once prints a table");
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    set_escdelay(50);
    wtimeout(stdscr, kTickMilliseconds);
    if (has_colors()) {
      start_color();
      use_default_colors();
      init_pair(1, COLOR_GREEN, -1);
      init_pair(2, COLOR_YELLOW, -1);
      init_pair(3, COLOR_RED, -1);
    }
  }
  ~Screen() {
    endwin();
    delscreen(terminal_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void run() {
    double next = 0;
    while (stop_request() == nullptr && !left_) {
      if (const double now = seconds_now(); now >= next && !frozen_) {
        next = now + source_.interval;
        take_frame();
      }
      draw();
      if (const int key = wgetch(stdscr); key != ERR) take_key(key);
    }
  }

 private:
  static double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void take_frame() {
    std::optional<Frame> frame = source_.next();
    if (!frame) return;
    frame_ = std::move(*frame);
    if (!frame_.devices.empty() && frame_.devices.front().used && frame_.devices.front().capacity > 0)
      history_.push_back(static_cast<double>(*frame_.devices.front().used) /
                         static_cast<double>(frame_.devices.front().capacity));
    if (history_.size() > kHistory) history_.pop_front();
  }

  // The runs that the filter lets through, in the order that was chosen.
  [[nodiscard]] std::vector<const RunStatus*> shown() const {
    std::vector<const RunStatus*> runs;
    for (const RunStatus& run : frame_.runs)
      if (filter_.empty() || formatted("{} {}", run.name, run.state).find(filter_) != std::string::npos)
        runs.push_back(&run);
    std::stable_sort(runs.begin(), runs.end(), [&](const RunStatus* a, const RunStatus* b) {
      const double left = kOrders[order_].value(*a), right = kOrders[order_].value(*b);
      return descending_ ? left > right : left < right;
    });
    return runs;
  }

  [[nodiscard]] const RunStatus* selected() const {
    for (const RunStatus& run : frame_.runs)
      if (run.id == selected_) return &run;
    return nullptr;
  }

  // One line, cut at the screen's edge. `text` is printable already.
  void line(const std::string& text, attr_t attributes = 0) {
    int rows = 0, columns = 0;
    getmaxyx(stdscr, rows, columns);
    if (row_ >= rows) return;
    wmove(stdscr, row_++, 0);
    wclrtoeol(stdscr);
    std::wstring wide(text.size() + 1, L'\0');
    const size_t length = std::mbstowcs(wide.data(), text.c_str(), wide.size());
    wide.resize(length == static_cast<size_t>(-1) ? 0 : length);
    int width = 0;
    size_t kept = 0;
    for (; kept < wide.size(); ++kept) {
      width += std::max(0, wcwidth(wide[kept]));
      if (width >= columns) break;
    }
    wattron(stdscr, static_cast<int>(attributes));
    waddnwstr(stdscr, wide.c_str(), static_cast<int>(kept));
    if ((attributes & A_REVERSE) != 0)
      for (; width < columns - 1; ++width) waddch(stdscr, ' ');
    wattroff(stdscr, static_cast<int>(attributes));
  }

  void draw() {
    row_ = 0;
    if (reading_log_) {
      draw_log();
    } else {
      draw_frame();
    }
    wclrtobot(stdscr);
    int rows = 0, columns = 0;
    getmaxyx(stdscr, rows, columns);
    row_ = rows - 1;
    line(bottom(), A_BOLD);
    wrefresh(stdscr);
  }

  // The text of the frame above its list of runs, then the list with the chosen run marked.
  void draw_frame() {
    int rows = 0, columns = 0;
    getmaxyx(stdscr, rows, columns);
    line(formatted("plimsoll top  {}{}", clock_text(), frozen_ ? "  frozen" : ""), A_BOLD);
    for (const std::string& one :
         split(top::frame_heading(frame_, static_cast<size_t>(std::max(1, columns - 1))), '\n'))
      if (!one.empty()) line(one);
    const std::vector<const RunStatus*> runs = shown();
    // On a low screen the runs come first: bars repeat the table.
    const int list_rows = 3 + std::clamp(static_cast<int>(runs.size()), 1, kRunsBeforeBars);
    if (row_ + 1 + static_cast<int>(frame_.devices.size()) + list_rows <= rows) {
      line("  memory of runs, of the capacity  " +
           sparkline(static_cast<size_t>(std::max(10, columns - 40))));
      for (const top::DeviceStatus& device : frame_.devices) line(bar(device, columns), colour_of(device));
    }
    line("");
    const auto is_selected = [&](const RunStatus* run) { return run->id == selected_; };
    if (!runs.empty() && std::none_of(runs.begin(), runs.end(), is_selected)) selected_ = runs.front()->id;
    const std::vector<std::string> lines =
        split(top::runs_text(runs, static_cast<size_t>(std::max(1, columns - 1))), '\n');
    line(lines.front(), A_UNDERLINE);
    const int room = std::max(1, rows - row_ - 1);
    const auto at = static_cast<size_t>(std::find_if(runs.begin(), runs.end(), is_selected) - runs.begin());
    const size_t first = at >= static_cast<size_t>(room) ? at - static_cast<size_t>(room) + 1 : 0;
    for (size_t i = first; i < runs.size() && i < first + static_cast<size_t>(room); ++i)
      line(lines[i + 1], runs[i]->id == selected_ ? A_REVERSE : 0);
    if (runs.empty())
      line(frame_.runs.empty() ? "  " + std::string(top::kQueueIsEmpty)
                               : formatted("  no run has '{}'", printable(filter_)));
    draw_others(rows);
  }

  // The others below the runs, the largest first, as far as there is room for them.
  void draw_others(int rows) {
    const std::vector<std::string> others =
        split(top::foreign_text(frame_, static_cast<size_t>(std::max(1, COLS - 1))), '\n');
    constexpr int kFewest = 3;  // an empty line, the titles and one process
    if (rows - 1 - row_ < kFewest) return;
    for (const std::string& one : others)
      if (row_ < rows - 1) line(one);
  }

  [[nodiscard]] std::string clock_text() const {
    const auto whole = static_cast<time_t>(frame_.time);
    tm local{};
    localtime_r(&whole, &local);
    char text[32];
    return {text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local)};
  }

  [[nodiscard]] std::string sparkline(size_t width) const {
    const size_t shown = std::min(width, history_.size());
    return format_blocks({history_.end() - static_cast<std::ptrdiff_t>(shown), history_.end()});
  }

  // A bar of what is used, what is reserved beyond it, and what is free.
  static std::string bar(const top::DeviceStatus& device, int columns) {
    const int width = std::clamp(columns - 24, 10, 60);
    const auto part = [&](int64_t bytes) {
      if (device.capacity <= 0) return 0;
      return static_cast<int>(
          std::clamp(static_cast<double>(bytes) / static_cast<double>(device.capacity), 0.0, 1.0) * width);
    };
    const int used = part(device.used.value_or(0)), reserved = std::max(used, part(device.reserved));
    std::string name = printable(device.name).substr(0, 16);
    name.resize(18, ' ');
    return formatted("  {}[{}{}{}]", name, std::string(static_cast<size_t>(used), '#'),
                     std::string(static_cast<size_t>(reserved - used), '='),
                     std::string(static_cast<size_t>(width - reserved), ' '));
  }

  static attr_t colour_of(const top::DeviceStatus& device) {
    if (device.used.value_or(0) > device.reserved) return COLOR_PAIR(3);
    return COLOR_PAIR(device.reserved * 10 > device.capacity * 9 ? 2 : 1);
  }

  void draw_log() {
    int rows = 0, columns = 0;
    getmaxyx(stdscr, rows, columns);
    const RunStatus* run = selected();
    line(formatted("log of {}{}", selected_, run == nullptr ? "" : " " + printable(run->name)), A_BOLD);
    std::vector<std::string> lines;
    if (run != nullptr) lines = split(printable_text(source_.log(*run)), '\n');
    while (!lines.empty() && lines.back().empty()) lines.pop_back();
    const int room = std::max(1, rows - 2);
    const int most = std::max(0, static_cast<int>(lines.size()) - room);
    scrolled_ = std::clamp(scrolled_, 0, most);
    for (int i = most - scrolled_; i < static_cast<int>(lines.size()) && i < most - scrolled_ + room; ++i)
      line(lines[static_cast<size_t>(i)]);
    if (lines.empty()) line("  no output yet");
  }

  [[nodiscard]] std::string bottom() const {
    if (confirming_) return formatted("cancel {} with all that it started? y/n", *confirming_);
    if (typing_) return formatted("filter: {}_   (Enter keeps it, Esc clears it)", printable(filter_));
    if (!message_.empty()) return printable(message_);
    if (reading_log_) return "up, down: scroll   q: back";
    std::vector<std::string> keys = {"q: leave"};
    if (source_.cancel) keys.insert(keys.end(), {"l: log", "c: cancel"});
    keys.insert(keys.end(), {formatted("s: sort ({})", kOrders[order_].title),
                             "/: filter" + (filter_.empty() ? "" : formatted(" ({})", printable(filter_))),
                             "space: freeze", "r: reverse", "up, down: choose"});
    // The last ones are left out where there is no room for them.
    while (keys.size() > 1 && columns_of(join(keys, "   ")) >= static_cast<size_t>(getmaxx(stdscr)))
      keys.pop_back();
    return join(keys, "   ");
  }

  void take_key(int key) {
    if (key == kControlL) return void(clearok(curscr, TRUE));  // whatever has written over it is gone
    message_.clear();
    if (confirming_) {
      if (key == 'y') message_ = source_.cancel(*confirming_);
      confirming_.reset();
    } else if (typing_) {
      type(key);
    } else if (key == KEY_UP || key == 'k') {
      move_by(-1);
    } else if (key == KEY_DOWN || key == 'j') {
      move_by(1);
    } else if (key == KEY_PPAGE || key == KEY_NPAGE) {
      move_by(key == KEY_PPAGE ? -10 : 10);
    } else if (reading_log_) {
      if (key == 'q' || key == kEscape || key == 'l') reading_log_ = false;
    } else {
      take_command(key);
    }
  }

  void take_command(int key) {
    switch (key) {
      case 'q':
        left_ = true;
        break;
      case 's':
        order_ = (order_ + 1) % kOrders.size();
        break;
      case 'r':
        descending_ = !descending_;
        break;
      case ' ':
        frozen_ = !frozen_;
        break;
      case '/':
        typing_ = true;
        break;
      case 'c':
        if (source_.cancel && selected() != nullptr) confirming_ = selected_;
        break;
      case 'l':
      case KEY_ENTER:
      case '\n':
        reading_log_ = source_.log && selected() != nullptr;
        scrolled_ = 0;
        break;
      default:
        break;
    }
  }

  void type(int key) {
    if (key == kEscape) filter_.clear();
    if (key == kEscape || key == '\n' || key == KEY_ENTER) {
      typing_ = false;
    } else if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
      if (!filter_.empty()) filter_.pop_back();
    } else if (key >= ' ' && key < 127 && filter_.size() < 60) {
      filter_ += static_cast<char>(key);
    }
  }

  void move_by(int rows) {
    if (reading_log_) {
      scrolled_ -= rows;
      return;
    }
    const std::vector<const RunStatus*> runs = shown();
    if (runs.empty()) return;
    int at = 0;
    while (at < static_cast<int>(runs.size()) && runs[static_cast<size_t>(at)]->id != selected_) ++at;
    at = std::clamp(at + rows, 0, static_cast<int>(runs.size()) - 1);
    selected_ = runs[static_cast<size_t>(at)]->id;
  }

  const ScreenSource& source_;
  SCREEN* terminal_ = nullptr;
  Frame frame_;
  std::deque<double> history_;
  int64_t selected_ = 0;
  size_t order_ = 0;
  int row_ = 0, scrolled_ = 0;  // lines from the end of a log
  bool left_ = false, frozen_ = false, descending_ = false, typing_ = false, reading_log_ = false;
  std::optional<int64_t> confirming_;  // to be canceled, if confirmed
  std::string filter_, message_;
};

}  // namespace

void show_screen(const ScreenSource& source) {
  // Before the library would set its own: a screen that is left by a signal is put back too.
  listen_to_stop_requests();
  Screen(source).run();
}

}  // namespace plimsoll
