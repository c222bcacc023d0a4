#include "data/batch/common_begin.h"

#include <algorithm>

namespace plimsoll {

void CommonBegin::keep(std::span<const int32_t> ids) {
  if (!ids_)
    ids_.emplace(ids.begin(), ids.end());
  else
    ids_->erase(std::mismatch(ids.begin(), ids.end(), ids_->begin(), ids_->end()).second, ids_->end());
}

void CommonBegin::add(const Example& example) {
  const std::span<const int32_t> ids(example.ids), labels(example.labels);
  for (int64_t i = 0, begin = 0; i < example.sequences(); begin = example.end_of(i++)) {
    const auto from = static_cast<size_t>(begin), count = static_cast<size_t>(example.end_of(i) - begin);
    const auto tokens = ids.subspan(from, count);
    keep(tokens.first(shareable_begin(tokens, labels.subspan(from, count), labels_)));
  }
}

void CommonBegin::add(const CommonBegin& other) {
  if (other.ids_) keep(*other.ids_);
}

}  // namespace plimsoll
