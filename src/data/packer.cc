#include "data/packer.h"

namespace plimsoll {

int64_t Packer::place(int64_t tokens) {
  for (size_t i = 0; i < filled_.size() && shape_.documents > 1; ++i) {
    Filled& filled = filled_[i];
    if (filled.tokens + tokens > shape_.max_length || filled.documents == shape_.documents) continue;
    filled.tokens += tokens;
    ++filled.documents;
    return static_cast<int64_t>(i);
  }
  if (sequences() == capacity_) return -1;
  filled_.push_back({tokens, 1});
  return sequences() - 1;
}

}  // namespace plimsoll
