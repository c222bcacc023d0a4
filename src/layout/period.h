// Layouts of what repeats, as the layers of a backward pass do.
//
// Where one cycle of a program is like the next for a long stretch, some of them tell all: their buffers lie
// on a circle, where what leaves at the end comes in again at the beginning. That is a problem of some
// hundred buffers instead of thousands, and its offsets hold in all cycles of the stretch. What lives through
// a stretch is placed below all; then the circles, each by itself, every second time with the largest buffers
// first, in as few bytes as they can; then the joints, what lies before, between and behind the stretches,
// with some of the first and last cycles of those.
#pragma once

#include "layout/neighbours.h"

namespace plimsoll::layout {

// Until `best` is near enough or the work is done. Without a period nothing changes.
void improve_by_period(const Instance& instance, const Neighbours& neighbours, Placement& best);

}  // namespace plimsoll::layout
