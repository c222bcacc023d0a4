// Placing outward from where most is alive.
//
// What is alive together at the peak lies in one stack without gaps, in the order of its first or its last
// op. Before the peak, what has not begun then leaves its part of the stack free, in one piece, as the order
// goes by time; the rest is placed from the peak outward, each buffer where it meets the free part first.
// Programs that move tensors have chains of copies which end in the order in which they began: so placed, a
// chain goes round like a ring.
#pragma once

#include "layout/climb.h"

namespace plimsoll::layout {

// Until `best` is good enough or the work is done (improve_by_climbing).
void improve_outward(const Instance& instance, const Neighbours& neighbours, double most_work,
                     Placement& best);

}  // namespace plimsoll::layout
