// Stores what was measured on a GPU: one file per card in the user's cache folder, by its UUID.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "device/catalogue.h"

namespace plimsoll {

// Adds `measured` to the file's measurements of the same card with the same driver and kernels; replaces them
// where one of these differs. For bytes the least of all measurements is kept, since memory that other
// processes use during a measurement only adds. Throws StoppedError where nothing can be written.
void save_card(const std::filesystem::path& folder, const MeasuredCard& measured);

// The measurements of the card with that UUID, else of the one of that name that was measured last; nullopt
// where there is no such file. A file that cannot be used is skipped, and `note` gives the reason.
std::optional<MeasuredCard> find_measured_card(const std::filesystem::path& folder, const std::string& name,
                                               const std::string& uuid, std::string& note);
// The same from cache_folder(); none where there is no such folder.
std::optional<MeasuredCard> find_measured_card(const std::string& name, const std::string& uuid,
                                               std::string& note);

}  // namespace plimsoll
