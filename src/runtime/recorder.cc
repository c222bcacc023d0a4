#include "runtime/recorder.h"

namespace plimsoll {

Recorder::Recorder(const std::array<size_t, kTracks>& capacity) {
  for (size_t i = 0; i < kTracks; ++i) spans_[i].reserve(capacity[i]);
}

}  // namespace plimsoll
