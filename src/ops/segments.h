// Segments of trees, for kernels that walk from one to another: a segment continues where its parent ends;
// behind it come all its descendants. A table has `starts`, `parents` (null: sequences are apart) and
// `count`, as SequenceTable has; segments are numbered by int64_t or, on a GPU, by int. Functions are static:
// a kernel file's copy, compiled for one instruction set, must never be the one the linker keeps for
// everybody; constexpr, so that they are the GPU's too.
#pragma once

#include <cstdint>

namespace plimsoll {

// The segment that it continues, or -1.
template <class Table, class Index>
static constexpr Index parent_of(const Table& t, Index segment) {
  return t.parents == nullptr ? -1 : t.parents[segment];
}
template <class Table, class Index>
static constexpr Index length_of(const Table& t, Index segment) {
  return t.starts[segment + 1] - t.starts[segment];
}
// The end of its descendants, which come right behind it.
template <class Table, class Index>
static constexpr Index subtree_end(const Table& t, Index segment) {
  Index end = segment + 1;
  while (t.parents != nullptr && end < t.count && t.parents[end] >= segment) ++end;
  return end;
}
template <class Table, class Index>
static constexpr bool goes_on(const Table& t, Index segment) {
  return t.parents != nullptr && segment + 1 < t.count && t.parents[segment + 1] == segment;
}
// Returns true if several segments continue where it ends.
template <class Table, class Index>
static constexpr bool forks(const Table& t, Index segment) {
  if (!goes_on(t, segment)) return false;
  const Index second = subtree_end(t, segment + 1);
  return second < t.count && t.parents[second] == segment;
}
template <class Table, class Index>
static constexpr bool is_last_child(const Table& t, Index segment) {
  const Index next = subtree_end(t, segment);
  return next == t.count || t.parents[next] != t.parents[segment];
}
// Returns true if it is the second segment to continue its parent.
template <class Table, class Index>
static constexpr bool is_second_child(const Table& t, Index segment) {
  const Index parent = parent_of(t, segment);
  Index before = segment - 1;
  while (before > parent && t.parents[before] != parent) before = t.parents[before];
  return parent >= 0 && before == parent + 1;
}
// A number of its own for a segment that forks, below the number of all that do, which is less than half of
// the segments: second children are counted, up to its own.
template <class Table, class Index>
static constexpr Index fork_number(const Table& t, Index segment) {
  Index number = 0;
  for (Index s = 1, second = subtree_end(t, segment + 1); s < second; ++s)
    number += is_second_child(t, s) ? 1 : 0;
  return number;
}

}  // namespace plimsoll
