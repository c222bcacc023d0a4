// Resolves where paths lie, links included, whether they exist or not.
#pragma once

#include <filesystem>

namespace plimsoll {

// Absolute, links resolved, without a slash at its end.
std::filesystem::path real_path(const std::filesystem::path& path);
// Returns true if `path`, or a folder above it, is `folder`; both are real paths.
bool is_within(std::filesystem::path path, const std::filesystem::path& folder);

}  // namespace plimsoll
