// Errors as users meet them: every one carries the exit code the program ends with.
#pragma once

#include <stdexcept>
#include <string>

namespace plimsoll {

enum class ExitCode : int {
  ok = 0,
  internal = 1,      // our own fault: the message asks for a report
  usage = 2,         // bad input or usage
  does_not_fit = 3,  // a memory budget is too small
  damaged = 4,       // damaged data or checkpoint
  stopped = 5,       // the run had to stop: NaN, disk full, I/O
  interrupted = 130  // SIGINT or SIGTERM, state saved
};

// Base of every error thrown on purpose. The message says what was wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// The user's input or usage is wrong (exit 2).
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};
// A plan does not fit its budget (exit 3).
struct DoesNotFitError : Error {
  explicit DoesNotFitError(const std::string& message) : Error(ExitCode::does_not_fit, message) {}
};
// A file is damaged (exit 4).
struct DamagedError : Error {
  explicit DamagedError(const std::string& message) : Error(ExitCode::damaged, message) {}
};
// The run has to stop (exit 5).
struct StoppedError : Error {
  explicit StoppedError(const std::string& message) : Error(ExitCode::stopped, message) {}
};
// A bug of ours (exit 1).
struct InternalError : Error {
  explicit InternalError(const std::string& message) : Error(ExitCode::internal, message) {}
};

// Throws InternalError unless `condition` holds.
inline void check_internal(bool condition, const std::string& message) {
  if (!condition) throw InternalError(message);
}
inline void check_internal(bool condition, const char* message) {
  if (!condition) throw InternalError(message);
}

}  // namespace plimsoll
