// The speed at which processes of one machine send each other gradients and weights, measured and stored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "ranks/group.h"

namespace plimsoll {

// Bytes per second that each rank sends while all of them add up gradients and gather weights, sums included. All
// ranks call it.
double measure_link(Group& group);

// Returns what was measured on this machine with so many devices; none: nothing, or not on this CPU.
std::optional<double> known_link(const std::filesystem::path& folder, int64_t devices);
// From the user's cache folder; none where there is no such folder.
std::optional<double> known_link(int64_t devices);
std::filesystem::path link_file(const std::filesystem::path& folder);
void save_link(const std::filesystem::path& folder, int64_t devices, double bytes_per_second);

}  // namespace plimsoll
