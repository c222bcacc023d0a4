// What a run asks for after its memory ran out: never the same impossible attempt twice.
#pragma once

#include <optional>

#include "fleet/queue/packing.h"

namespace plimsoll::queue {

// After running out with `used` bytes of its own (on each card, or on the host where it has none).
// Within its need: others were in its way, and the same is tried again. Above: half as much again, or a
// quarter above what it used, at most a whole device. None: it had the whole
// device, or took more than that.
std::optional<Need> need_after_memory_ran_out(const Machine& machine, Need need, int64_t used);

}  // namespace plimsoll::queue
