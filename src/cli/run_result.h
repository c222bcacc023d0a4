// Checks that a run's folder has a result, for commands that need one.
#pragma once

#include <filesystem>

namespace plimsoll {

// Throws UsageError where the folder is that of a run which has no result yet: how far it is, and what to do.
// Says nothing of folders that are no run's.
void require_result(const std::filesystem::path& folder);

}  // namespace plimsoll
