// What people see while a run goes on: one line that updates on a terminal, a plain line every so often
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace plimsoll {

struct ProgressState {
  int64_t step = 0, total = 0;
  double loss = 0, learning_rate = 0, tokens_per_second = 0, data_wait_share = 0;
  int64_t memory_bytes = 0;
};

class Progress {
 public:
  // `every`: steps between lines when standard error is no terminal.
  Progress(bool quiet, int64_t every);
  // A lasting line above the bar.
  void event(const std::string& line);
  // Redraws at most ten times a second. Allocates nothing.
  void update(const ProgressState& state);
  // "load    weights ███░░ 2.88 GiB"
  void loading(int64_t done, int64_t total);
  // Ends the bar's line.
  void finish();

 private:
  void draw(const ProgressState& state);

  bool quiet_;
  bool terminal_;
  int64_t every_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point start_, last_draw_;
  int64_t first_step_ = -1;
};

}  // namespace plimsoll
