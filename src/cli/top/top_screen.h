// The full screen of `plimsoll top`.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fleet/top/frame.h"

namespace plimsoll {

struct ScreenSource {
  std::function<std::optional<top::Frame>()> next;  // none: there are no more
  double interval = 2;                              // seconds between frames
  // Empty where frames are replayed.
  std::function<std::string(int64_t)> cancel;             // ends an entry; what became of that
  std::function<std::string(const top::RunStatus&)> log;  // the end of its log
};

// Shows the screen until the user leaves, or a signal ends it. Throws UsageError where the terminal is
// unknown.
void show_screen(const ScreenSource& source);

}  // namespace plimsoll
