// A layout that a search asks for only to know whether programs fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "layout/program_layout.h"

namespace plimsoll {

// Bytes of the device that an arena may take (a process's share where it has some in common), and whether a layout of more was left as it was for that: where what lives
// together takes nearly all of them, the searches for tight layouts (layout/period.h) end above them, and are left out.
// A layout that takes no more is the one of lay_out().
struct LayoutLimit {
  std::optional<int64_t> device_bytes;
  bool gave_up = false;
};

ArenaLayout lay_out(std::span<const Graph> programs, const LayoutOptions& options, LayoutLimit& limit);

}  // namespace plimsoll
