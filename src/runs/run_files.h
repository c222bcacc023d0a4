// Names of files in a run's folder that several folders of the source name.
#pragma once

namespace plimsoll {

// The cache of frozen layers' activations, there as long as the run lasts.
inline constexpr const char* kFrozenFile = "frozen.rows";

}  // namespace plimsoll
