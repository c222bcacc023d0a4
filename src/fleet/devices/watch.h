// Polls the state of the GPUs without ever waiting for them: a process of its own asks the driver (nvml.h).
// If it does not answer in time, it is ended, and the report says that it did not answer. A card that hangs
// is left alone while the others are asked. Where one failed, and none hangs, the next question is asked by a
// new process, as the library sees some cards again only after a new start.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "fleet/devices/gpu.h"

namespace plimsoll::devices {

struct WatchTimes {
  double between = 2;  // seconds from an answer to the next question
  double retry = 5;    // the same after a failure
  double absent = 60;  // the same where there is no driver
  double card = 4;     // for a card to answer; the driver has half as much again
  double start = 20;   // for the first answer: a driver that sleeps takes seconds for each card
};
// Reads PLIMSOLL_NVML_SECONDS ("CARD" or "CARD,BETWEEN"); `start` and `retry` follow in proportion. Throws
// UsageError unless it has numbers above 0.
WatchTimes watch_times();

class GpuWatch {
 public:
  GpuWatch(std::string library, WatchTimes times) : library_(std::move(library)), times_(times) {}
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // The last answer; starts a new query where it is time for one. Never waits.
  const GpuReport& look();
  // Waits for the first answer, `start` at most.
  const GpuReport& first();
  // Counts answers and failures to answer: another number, another report.
  [[nodiscard]] int64_t answers() const { return answers_; }

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  void ask();
  bool take_answer();
  void take(GpuReport report);
  void fail(const std::string& problem);
  void retire();
  [[nodiscard]] bool retired();
  [[nodiscard]] double patience() const;

  std::string library_;
  WatchTimes times_;
  GpuReport report_;
  int64_t answers_ = 0;
  pid_t child_ = 0;    // that answers
  pid_t leaving_ = 0;  // was killed, and is still there: in the kernel, where nothing ends it
  int channel_ = -1;
  bool requested_ = false, fresh_ = true;  // a question is open; this process has not answered yet
  std::string text_;                       // that has come of an answer
  Clock::time_point requested_at_, next_;
};

}  // namespace plimsoll::devices
