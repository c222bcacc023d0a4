#include "train/gradient_sums.h"

#include <algorithm>

namespace plimsoll {

GradientSums::GradientSums(Group& group, const PersistentState& state) : sum_(group) {
  if (group.is_alone()) return;
  for (const TableRow& row : state.rows())
    if (row.role == Role::gradient) parts_[row.dtype].push_back(state.bytes(row));
}

void GradientSums::clear() const {
  for (const auto& [dtype, parts] : parts_)
    for (const std::span<std::byte> part : parts) std::ranges::fill(part, std::byte{0});
}

void GradientSums::add_up() {
  for (const auto& [dtype, parts] : parts_) sum_.add(parts, dtype);
}

}  // namespace plimsoll
