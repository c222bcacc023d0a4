// First fit in rounds of orders in which what stuck out goes earlier.
#pragma once

#include "layout/instance.h"

namespace plimsoll::layout {

// Until `best` is good enough or the work is done. No clock: equal problems have equal answers.
void improve_by_first_fit(const Instance& instance, Placement& best);

}  // namespace plimsoll::layout
