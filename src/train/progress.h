// What people see while a run goes on: one line that updates on a terminal, a plain line every so often
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/log_level.h"
#include "train/progress_line.h"

namespace plimsoll {

class Progress {
 public:
  // `every`: steps between lines when standard error is no terminal.
  Progress(LogLevel level, int64_t every);
  // A lasting line above the bar, where the level lets it through.
  void event(const std::string& line, LogLevel level = LogLevel::info);
  [[nodiscard]] bool shows(LogLevel level) const { return level <= level_; }
  // Redraws at most ten times a second, to the width that the terminal has then; at each tenth of the run the
  // line stays. `seconds_left` counts until there is a rate. Allocates nothing.
  void update(ProgressState state);
  void loading(int64_t done, int64_t total);
  // Ends the bar's line.
  void finish();

 private:
  // Replaces the open line. A terminal that became narrower has broken it into several.
  void show(const char* text, const FittedLine& line, int width);
  void clear_line(int width);

  LogLevel level_;
  bool terminal_;
  int64_t every_;
  int open_columns_ = 0;  // of the line that the cursor is in; 0: none
  std::chrono::steady_clock::time_point start_, last_draw_;
  int64_t first_step_ = -1;
};

}  // namespace plimsoll
