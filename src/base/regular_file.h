// Opens files that others wrote, all in one place: a FIFO, a socket or a device under a file's name never
// makes a command wait, and is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace plimsoll {

// "No space left on device", ...: the system's text for an errno value.
std::string system_message(int error);

// A descriptor for reading. Throws UsageError where there is no such file, it may not be read, or it is no
// regular file; links are followed.
int open_regular(const std::filesystem::path& path);
// Throws as open_regular does: for files that a library opens by itself.
void require_regular(const std::filesystem::path& path);

// A descriptor of a new file in the folder that has no name, for reading and writing: it is gone with the
// process. Where the file system has none, one that begins with `name` and is removed at once. -1: neither
// (errno).
int open_unnamed(const std::filesystem::path& folder, const std::string& name);

// The first `most` bytes, or all there are. Throws as open_regular does, StoppedError where reading fails.
std::string read_start(const std::filesystem::path& path, int64_t most);
// The last `most` bytes, or all there are. Throws as read_start does.
std::string read_end(const std::filesystem::path& path, int64_t most);
// The whole file. Throws UsageError when it is larger than `most` bytes.
std::string read_regular(const std::filesystem::path& path, int64_t most);

}  // namespace plimsoll
