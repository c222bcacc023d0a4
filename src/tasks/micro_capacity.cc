#include "tasks/micro_capacity.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace plimsoll {

MicroPacker::MicroPacker(const MicroCapacity& capacity, int64_t rows) : capacity_(capacity) {
  const auto most = static_cast<size_t>(rows);
  sizes_.reserve(most);
  order_.reserve(most);
  step_of_.reserve(most);
  filled_.reserve(most);
}

void MicroPacker::clear() { sizes_.clear(); }

void MicroPacker::add(const RowSize& row) {
  check_internal(sizes_.size() < sizes_.capacity() && takes({}, row), "a row is longer than a micro-step");
  sizes_.push_back(row);
}

bool MicroPacker::takes(const Filled& filled, const RowSize& row) const {
  return filled.rows < capacity_.samples &&
         capacity_.begin + filled.size.tokens + row.tokens <= capacity_.tokens &&
         filled.size.targets + row.targets <= capacity_.targets;
}

int64_t MicroPacker::pack() {
  order_.resize(sizes_.size());
  step_of_.resize(sizes_.size());
  filled_.clear();
  std::iota(order_.begin(), order_.end(), 0);
  const auto size = [&](int32_t row) { return sizes_[static_cast<size_t>(row)]; };
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    const int64_t x = size(a).tokens + size(a).targets, y = size(b).tokens + size(b).targets;
    return x != y ? x > y : a < b;
  });
  for (const int32_t row : order_) {
    auto to = std::find_if(filled_.begin(), filled_.end(),
                           [&](const Filled& filled) { return takes(filled, size(row)); });
    if (to == filled_.end()) to = filled_.insert(to, Filled{});
    to->size.tokens += size(row).tokens;
    to->size.targets += size(row).targets;
    ++to->rows;
    step_of_[static_cast<size_t>(row)] = static_cast<int32_t>(to - filled_.begin());
  }
  return std::ssize(filled_);
}

int64_t MicroPacker::most_rows() const {
  int64_t most = 0;
  for (const Filled& filled : filled_) most = std::max(most, filled.rows);
  return most;
}

}  // namespace plimsoll
