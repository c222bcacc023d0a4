// What `plimsoll train` leaves in an output folder beside checkpoints and the final files.
#pragma once

#include <filesystem>

namespace plimsoll {

bool holds_run(const std::filesystem::path& output);
// Throws UsageError where it does.
void require_no_run(const std::filesystem::path& output);
// Removes logs and checkpoints of the run that the folder holds.
void clear_run(const std::filesystem::path& output);

}  // namespace plimsoll
