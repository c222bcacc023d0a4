// `plimsoll train`: runs the plan.
#pragma once

#include "base/error.h"
#include "prepare/run/run_input.h"

namespace plimsoll {

// Runs what was prepared, and saves. `poison`, for tests: NaN where an owner died. Returns ok or interrupted
// (saved).
ExitCode train(RunInput input, const RunOptions& options, bool poison);

}  // namespace plimsoll
