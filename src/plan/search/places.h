// Places on a line of whole numbers, found by halves.
#pragma once

#include <cstdint>

namespace plimsoll {

// Finds the first place of the least value of a convex function on [low, high].
template <class Function>
int64_t least_place(int64_t low, int64_t high, const Function& value) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (value(middle) <= value(middle + 1)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The place in [low, high] farthest from `from`, which holds, where `holds` is true from there to here only.
template <class Predicate>
int64_t farthest(int64_t from, int64_t to, const Predicate& holds) {
  while (from != to) {
    const int64_t middle = from + (to - from) / 2 + (to - from) % 2;
    if (holds(middle)) {
      from = middle;
    } else {
      to = middle + (from < to ? -1 : 1);
    }
  }
  return from;
}

// The first place in [low, high] for which `holds`, which stays so; high where it may not hold anywhere.
template <class Predicate>
int64_t first_place(int64_t low, int64_t high, const Predicate& holds) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace plimsoll
