#include "graph/name_ending.h"

#include <cstdint>
#include <utility>

namespace plimsoll {

NameEnding::Known& NameEnding::place_of(const std::string* base) {
  size_t at = (reinterpret_cast<uintptr_t>(base) * 0x9E3779B97F4A7C15U >> 20U) & (known_.size() - 1);
  while (known_[at].base != nullptr && known_[at].base != base) at = (at + 1) & (known_.size() - 1);
  return known_[at];
}

void NameEnding::grow() {
  std::vector<Known> before = std::exchange(known_, std::vector<Known>(2 * known_.size()));
  for (const Known& known : before)
    if (known.base != nullptr) place_of(known.base) = known;
}

Name NameEnding::behind(const Name& base) {
  const std::string* const text = &base.text();
  const std::lock_guard lock(mutex_);
  Known* known = &place_of(text);
  if (known->base != nullptr) return known->whole;
  if (2 * ++count_ > known_.size()) {
    grow();
    known = &place_of(text);
  }
  *known = {text, Name(base + ending_)};
  return known->whole;
}

}  // namespace plimsoll
