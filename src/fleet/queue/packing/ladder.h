// Decides what a run asks for after its memory ran out: never the same impossible attempt twice, and never
// more than others on the machine leave.
#pragma once

#include <optional>
#include <vector>

#include "fleet/queue/packing/packing.h"

namespace plimsoll::queue {

// After running out with `used` bytes of its own (on each card, or on the host where it has none).
// Within its need: others were in its way, and the same is tried again. Above: half as much again, or a
// quarter above what it used, at most a whole device. None: it had the whole
// device, or took more than that.
std::optional<Need> need_after_memory_ran_out(const Machine& machine, Need need, int64_t used);

// An attempt that is over: what it had reserved, and whether it ran the command that the entry has now.
struct Tried {
  Need need;
  bool same_command = true;
};

enum class Fit : uint8_t {
  fits,        // when nothing of the queue runs
  less,        // a reservation that was raised gets less than that, and more than it ran out with
  too_little,  // others leave a raised reservation no more than it ran out with
  none,        // nothing was raised: it waits until others are gone
};
struct FitNextToOthers {
  Fit fit = Fit::fits;
  Need need;  // that it is to have
};

// Fits a need to `machine`, which is without all that others use. A reservation is raised by the ladder
// alone: the user asked for less, so less is given rather than waited for.
FitNextToOthers fit_next_to_others(const Machine& machine, const Need& need, const std::vector<Tried>& tried);

// Seconds that a raised reservation waits for others before its next step, or its end, comes.
inline constexpr double kRaisedPatienceSeconds = 60;
// Seconds that anything waits for others before it is held, where the worker is to end (run --until-done).
inline constexpr double kOthersPatienceSeconds = 24 * 3600.0;

}  // namespace plimsoll::queue
