// Progress events of a run, an evaluation or a model that answers. Nothing below cli prints: derive from
// RunObserver to receive events; the base class ignores them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/log_level.h"

namespace plimsoll {

// After a step of training.
struct StepProgress {
  int64_t step = 0, total = 0;
  double loss = 0, learning_rate = 0, tokens_per_second = 0, data_wait_share = 0;
  int64_t memory_bytes = 0;
  double seconds_left = 0;
  // With several devices: the share of the step in which this one waited for others and for what they sent, and the
  // one that computed longest, with how much longer than the median.
  double sending_share = 0;
  int64_t slowest = -1;
  double slower = 0;
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;

  // Returns true if lines of this level are wanted: others need not be made.
  [[nodiscard]] virtual bool hears(LogLevel) const { return false; }
  // A line for people that lasts: a plan, a save, a note.
  void event(const std::string& line, LogLevel level = LogLevel::info) {
    if (hears(level)) line_of(line, level);
  }
  // Allocates nothing.
  virtual void step(const StepProgress&) {}
  // Bytes of weights.
  virtual void loading(int64_t /*done*/, int64_t /*total*/) {}
  // Rows of a data set that are read to know how long they are.
  virtual void counting(int64_t /*done*/, int64_t /*total*/) {}
  // Rows that are written to a scratch file for the shuffle.
  virtual void storing(int64_t /*done*/, int64_t /*total*/) {}
  // Rows of a data set.
  virtual void answering(int64_t /*done*/, int64_t /*total*/) {}
  // A line of the run's logs, an object of JSON: "step", "evaluate", and what RunLog::event() calls the others.
  // Allocates nothing for steps.
  virtual void logged(std::string_view /*kind*/, std::string_view /*line*/) {}
  // The last of step() for now.
  virtual void steps_end() {}
  // The output that was asked for, in full: the table of a profile.
  virtual void result(std::string_view /*text*/) {}

 private:
  virtual void line_of(const std::string& /*line*/, LogLevel) {}
};

// Hears nothing.
inline RunObserver& nobody() {
  static RunObserver observer;
  return observer;
}

}  // namespace plimsoll
