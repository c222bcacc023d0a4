// Options for a program that starts a command: it receives events, and the command ends with it.
#pragma once

#include <CLI/App.hpp>
#include <optional>

#include "report/event_stream.h"

namespace plimsoll {

struct CallerArguments {
  int events = -1;     // descriptor; -1: no events
  int64_t parent = 0;  // process whose end ends this one; 0: none

  void add_to(CLI::App& command);
  // Before anything is read or opened. Throws UsageError for a descriptor that is not open, and for a process that
  // did not start this one or is gone.
  void begin(const char* command) const;

  // The observer that also sends events, where they are asked for.
  class Observer {
   public:
    explicit Observer(RunObserver& shown);
    [[nodiscard]] RunObserver* get() const { return sends_ ? &*sends_ : &shown_; }

   private:
    RunObserver& shown_;
    mutable std::optional<EventObserver> sends_;
  };
};

}  // namespace plimsoll
