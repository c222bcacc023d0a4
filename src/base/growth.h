// Vectors and strings that may become long: how they grow, and how they give their memory back. A long row's memory is planned
// by what was counted of it (heap_peak.h): the same values take the same bytes, and few of them more than they are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace plimsoll {

// The capacity for so many values where they are many, by their number alone: the same work takes the same memory, and at most a
// sixteenth of it, of much a thirty-second, is not used.
constexpr size_t capacity_for(size_t needed, size_t value_bytes) {
  const size_t share = needed * value_bytes < (size_t{32} << 20) ? 16 : 32;
  size_t step = 1;
  while (step * 2 * share <= needed) step *= 2;
  return (needed / step + 1) * step;
}
inline constexpr size_t kManyBytes = size_t{64} << 10;

// Makes room for so many values more.
template <class T>
void reserve_more(std::vector<T>& values, size_t more) {
  const size_t needed = values.size() + more;
  if (needed > values.capacity() && needed * sizeof(T) > kManyBytes)
    values.reserve(capacity_for(needed, sizeof(T)));
}
// A string's own reserve() doubles.
inline void reserve_more(std::string& text, size_t more) {
  const size_t needed = text.size() + more;
  if (needed <= text.capacity() || needed <= kManyBytes) return;
  std::string larger;
  larger.reserve(capacity_for(needed, 1));
  text.swap(larger.append(text));
}

// Gives back the memory of what holds many bytes; assigning an empty string would keep it.
inline void forget_many(std::string& text) {
  if (text.capacity() > kManyBytes) std::string().swap(text);
}
template <class T>
void forget_many(std::vector<T>& values) {
  if (values.capacity() * sizeof(T) > kManyBytes) std::vector<T>().swap(values);
}

}  // namespace plimsoll
