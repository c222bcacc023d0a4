// Takes over runs that were written before there were manifests, or whose manifest was left behind when they
// were copied.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "files/manifest.h"

namespace plimsoll {

// Takes those files of the folder for a run's that are provably one's: logs and run.json by the keys that a
// run writes, checkpoints by their trainer_state.json, the model's files where a checkpoint has the same ones
// or a run.json says that the run ended. A folder without run.json, checkpoint or events.jsonl of a run has
// none.
void adopt_run(const std::filesystem::path& folder, Manifest& manifest);

// "stopped-at-step-<step>.jsonl"
bool is_stopped_batch(std::string_view name);

}  // namespace plimsoll
