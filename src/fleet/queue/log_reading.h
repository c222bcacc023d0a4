// The doctor's reading of attempts' logs, each in a process of its own: the worker never waits for it, and no
// log takes the worker's memory.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>

#include "fleet/queue/outcome.h"

namespace plimsoll::queue {

// The limits of a reading.
struct ReadingLimits {
  unsigned cpu_seconds = 10;  // of a processor: a busy machine reads as much as an idle one
  unsigned seconds = 300;     // that pass, for a log that gives nothing to read
  int64_t bytes = int64_t{256} << 20;
};

// The verdict on a log whose reader ended without an answer, by waitpid's status.
LogVerdict unread_verdict(int status, const ReadingLimits& limits);

class LogReadings {
 public:
  explicit LogReadings(const ReadingLimits& limits = {}) : limits_(limits) {}
  ~LogReadings();
  LogReadings(const LogReadings&) = delete;
  LogReadings& operator=(const LogReadings&) = delete;

  // The verdict on the log; nothing while it is read, which begins with the first call. This process must
  // have no other thread. A log that is not read to its end within the limits is reported as unread.
  std::optional<LogVerdict> of(const std::filesystem::path& log);
  // Drops the readings of the logs in this folder.
  void forget(const std::filesystem::path& folder);

 private:
  struct Reading {
    pid_t process = 0;  // 0: it has ended
    int answer = -1;    // a file without a name
    std::optional<LogVerdict> verdict;
  };
  Reading begin(const std::filesystem::path& log) const;
  void take(Reading& reading) const;

  ReadingLimits limits_;
  std::map<std::filesystem::path, Reading> readings_;
};

}  // namespace plimsoll::queue
