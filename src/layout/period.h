// Layouts of what repeats, as the layers of a backward pass do.
//
// Where one cycle of a program is like the next for a long stretch, one of them tells all: its buffers lie on
// a circle of as many cycles as the longest of them lives, where what leaves at the end comes in again at the
// beginning. That is a problem of some hundred buffers instead of thousands, so that many orders can be
// tried; its offsets then hold in every cycle of the stretch. What lives through a stretch is placed below
// all, then the stretch where most is alive with what is beside it, then the others around it. First in
// twins: where two cycles take turns, the places of one lie as far below the top as those of the other above
// the bottom, so that half as many are to be found.
#pragma once

#include "layout/climb.h"

namespace plimsoll::layout {

// Until `best` is near enough or the work is done, which is returned (improve_by_climbing). Without a period
// nothing changes.
double improve_by_period(const Instance& instance, const Pairs& pairs, double most_work, Placement& best);

}  // namespace plimsoll::layout
