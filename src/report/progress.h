// Shows the progress of a run to people: one line that updates on a terminal, a plain line every so often
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "report/progress_line.h"
#include "runs/observer.h"

namespace plimsoll {

class Progress final : public RunObserver {
 public:
  // `every`: steps between lines when standard error is no terminal.
  Progress(LogLevel level, int64_t every);
  [[nodiscard]] bool hears(LogLevel level) const override { return level <= level_; }
  // Redraws at most ten times a second, to the width that the terminal has then; at each tenth of the run the
  // line stays. `seconds_left` counts until there is a rate. Allocates nothing.
  void step(const StepProgress& state) override;
  void loading(int64_t done, int64_t total) override;
  // On a terminal only.
  void counting(int64_t done, int64_t total) override;
  void storing(int64_t done, int64_t total) override;
  void answering(int64_t done, int64_t total) override;
  // Ends the bar's line.
  void steps_end() override;
  // Goes to standard output.
  void result(std::string_view text) override;

 private:
  // Above the bar.
  void line_of(const std::string& line, LogLevel level) override;
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
