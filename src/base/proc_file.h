// Reads the kernel's files in /proc and /sys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace plimsoll {

// At most 2 MiB of a file, to the block; empty where it is gone or may not be read. Never waits.
std::string read_proc(const std::filesystem::path& path);

// The number behind `key` in lines like "VmHWM:   123 kB", in bytes; 0 where it is missing.
int64_t kib_field(std::string_view text, std::string_view key);

}  // namespace plimsoll
