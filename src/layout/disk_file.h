// The file that an arena on disk is kept in.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "layout/program_layout.h"

namespace plimsoll {

// The largest block of disks that are read and written without the kernel's cache.
inline constexpr int64_t kLargestDiskBlock = 4096;

// The file is a multiple of the largest block, so that its last block can be moved whole.
inline int64_t disk_file_bytes(int64_t arena_bytes) { return round_up(arena_bytes, kLargestDiskBlock); }
inline int64_t disk_file_bytes(const ArenaLayout& layout) {
  return disk_file_bytes(layout.arena_bytes(Space::disk));
}

}  // namespace plimsoll
