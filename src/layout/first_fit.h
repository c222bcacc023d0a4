// First fit, in rounds: each round's order takes earlier the buffers that stuck out in the one before.
#pragma once

#include "layout/instance.h"

namespace plimsoll::layout {

// Until `best` is good enough or the work is done. No clock: equal problems have equal answers.
void improve_by_first_fit(const Instance& instance, Placement& best);

}  // namespace plimsoll::layout
