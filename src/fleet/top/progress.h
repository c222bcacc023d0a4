// How far a training is, by the ends of the files that it writes (docs/json.md).
#pragma once

#include <filesystem>
#include <optional>

#include "fleet/top/frame.h"

namespace plimsoll::top {

// Of a run folder; nothing where no training has begun in it. Files that grow meanwhile are no error.
std::optional<Progress> read_progress(const std::filesystem::path& run_folder);

}  // namespace plimsoll::top
