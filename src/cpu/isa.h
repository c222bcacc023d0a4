// The kernel family (instruction set) that this machine can run.
#pragma once

#include <optional>

#include "device/description.h"

namespace plimsoll {

// The largest family that the processor and the operating system support; asks Linux for the AMX tile state.
// PLIMSOLL_MAX_ISA makes it a lesser machine, as tests want it (docs/decisions/06-lesser-machine.md). Throws
// UsageError on a machine without AVX2, FMA and F16C, and where that variable names no family.
Isa detect_isa();

// detect_isa(), at most `cap`; throws UsageError when the cap is above what the machine has.
Isa effective_isa(std::optional<Isa> cap);

}  // namespace plimsoll
