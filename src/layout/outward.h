// Placing outward from where most is alive.
//
// What is alive together at the peak lies in one stack without gaps, in the order of its first or its last
// op. Before the peak, what has not begun then leaves its part of the stack free, in one piece, as the order
// goes by time; the rest is placed from the peak outward, each buffer where it meets the free part first.
// Programs that move tensors have chains of copies which end in the order in which they began: so placed, a
// chain goes round like a ring.
//
// Whether a stack works is known after few buffers beyond it. So thousands of orders are tried: one of those
// up to the first buffer that finds no room below a given height is changed, and what gets at least as far is
// kept.
#pragma once

#include "layout/instance.h"

namespace plimsoll::layout {

// Until `best` is good enough or the work is done. No clock and no chance: equal problems have equal answers.
void improve_outward(const Instance& instance, Placement& best);

}  // namespace plimsoll::layout
