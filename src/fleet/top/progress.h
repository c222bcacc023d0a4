// Reads how far a training is, from the ends of the files that it writes (docs/reference/json.md).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "fleet/top/frame.h"

namespace plimsoll::top {

// The progress of a run folder; nothing where no training has begun in it. Files that grow during the reading
// are no error.
std::optional<Progress> read_progress(const std::filesystem::path& run_folder);

// "1.0977"; "-" where there is no loss.
std::string loss_words(const std::optional<double>& loss);

}  // namespace plimsoll::top
