// Where it is kept what a card was measured to be: one file per card in the user's cache folder, by its UUID.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "device/catalogue.h"

namespace plimsoll {

// Adds what `measured` knows to what the file says of the same card with the same driver and kernels;
// replaces it where one of these is another. Of bytes the least of all measurements stays: what others had on
// the card meanwhile only adds. Throws StoppedError where nothing can be written.
void save_card(const std::filesystem::path& folder, const MeasuredCard& measured);

// Of the card with that UUID, else of the one of that name that was measured last. None where no file says; a
// file of no use is passed over, and `note` says why.
std::optional<MeasuredCard> find_measured_card(const std::filesystem::path& folder, const std::string& name,
                                               const std::string& uuid, std::string& note);
// The same from cache_folder(); none where there is no such folder.
std::optional<MeasuredCard> find_measured_card(const std::string& name, const std::string& uuid,
                                               std::string& note);

}  // namespace plimsoll
