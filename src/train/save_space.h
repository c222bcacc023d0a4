// Checks that what a run saves has space on the disk, before the run starts.
#pragma once

#include <string>

#include "files/run_folder.h"

namespace plimsoll {

// Throws StoppedError unless `folder` has space for so many files, for the next checkpoint, of `bytes`, and
// for a result of `result_bytes` where it cannot be hard links; returns what to tell where it has none for
// all of `checkpoints`, else "".
std::string require_save_space(const RunFolder& folder, int64_t files, int64_t bytes, int64_t result_bytes,
                               int64_t checkpoints);

}  // namespace plimsoll
