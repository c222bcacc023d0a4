// The policy for an entry whose attempt has ended, all of it, as a pure function.
//
//   exit code 0                       done
//   ended as asked                    canceled, or held
//   memory ran out                    again, with what the ladder says (ladder.h), while retries are left;
//                                     then as the user's next smaller variant, where there is one. So too
//                                     where others leave a raised reservation no more than it ran out with
// ended by a signal, disk full and the like (exit 5, 130 of a recipe)
//                                     again, while retries are left
//   its supervisor was lost           again: that was not the run's doing; at most kMostAttempts in all
//   a recipe was refused as others had taken the room (exit 3)   again, when there is room for it
//   its time was up (another scheduler's limit)   again with twice the time, while retries are left
//   anything else                     failed: it would fail in the same way again
//
// "Again" is canceled, or held, where that was asked for before the attempt was settled.
#pragma once

#include <string>

#include "fleet/queue/processes/attempt.h"
#include "fleet/queue/store/store.h"

namespace plimsoll::queue {

inline constexpr int kMostAttempts = 20;

// The doctor's verdict on the attempt's log.
struct LogVerdict {
  bool out_of_memory = false;
  bool of_others = false;  // others held what was missing
  std::string headline;
  std::string failure = {};  // another failure that the log reports, in the doctor's words
  // The message of a training that is refused for what is free at its start, not for its plan; empty: it was
  // not.
  std::string does_not_fit_now = {};
  std::string unread = {};  // what of the log was not read, and why; empty: all was
};

// `state`: ended or supervisor_lost. Fills the attempt's outcome and peak.
void settle(Entry& entry, Attempt& attempt, const AttemptState& state, const LogVerdict& verdict,
            const Machine& machine);

// Decides on a waiting entry whose raised reservation others leave no room for: its next step, or its end.
// `last` is its last attempt, whose outcome then records it.
void settle_beside_others(Entry& entry, Attempt& last);

// Reads at most the first and last 32 MiB of a log.
LogVerdict diagnose_log(const std::filesystem::path& log);

}  // namespace plimsoll::queue
