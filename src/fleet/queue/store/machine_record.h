// The record of a worker's resources, for programs that watch it: worker.json in the queue's folder.
#pragma once

#include <filesystem>
#include <optional>

#include "fleet/queue/packing/packing.h"

namespace plimsoll::queue {

// Failures count for nothing: it is there to be shown.
void record_machine(const std::filesystem::path& folder, const Machine& machine);
// The machine of the last worker; nothing where there was none.
std::optional<Machine> recorded_machine(const std::filesystem::path& folder);
// Returns true if a worker has this queue.
bool has_worker(const std::filesystem::path& folder);

}  // namespace plimsoll::queue
