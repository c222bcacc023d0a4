// What became of a run, for people.
#pragma once

#include <string>

#include "report/history.h"

namespace plimsoll {

// At most 100 columns.
std::string run_text(const RunHistory& run);

// A page that needs nothing but itself: loss, learning rate, speed and memory over the steps, what is known
// of the step that the reader points at, events.
std::string run_page(const RunHistory& run);

}  // namespace plimsoll
