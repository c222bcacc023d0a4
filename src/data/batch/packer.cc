#include "data/batch/packer.h"

namespace plimsoll {

int64_t Packer::place(int64_t tokens, int64_t documents) {
  for (size_t i = 0; i < filled_.size() && shape_.packs(); ++i) {
    Filled& filled = filled_[i];
    const bool full =
        filled.tokens + tokens > shape_.tokens || filled.documents + documents > shape_.documents;
    if (full) continue;
    filled.tokens += tokens;
    filled.documents += documents;
    return static_cast<int64_t>(i);
  }
  if (sequences() == capacity_) return -1;
  filled_.push_back({tokens, documents});
  return sequences() - 1;
}

}  // namespace plimsoll
