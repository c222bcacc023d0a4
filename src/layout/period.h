// Lays out programs that repeat themselves, as the layers of a backward pass do.
#pragma once

#include "layout/neighbours.h"

namespace plimsoll::layout {

// Until `best` is near enough or the work is done. Without a period nothing changes.
void improve_by_period(const Instance& instance, const Neighbours& neighbours, Placement& best);

}  // namespace plimsoll::layout
