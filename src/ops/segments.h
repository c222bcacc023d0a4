// Segments of trees (SequenceTable) for kernels that carry something from token to token: a segment goes on
// where its parent ends; behind it comes all that goes on from it. Functions are static: a kernel file's
// copy, compiled for one instruction set, must never be the one the linker keeps for everybody.
#pragma once

#include "ops/attention_kernels.h"

namespace plimsoll {

// The segment that it goes on from, or -1.
static inline int64_t parent_of(const SequenceTable& t, int64_t segment) {
  return t.parents == nullptr ? -1 : t.parents[segment];
}
static inline int64_t length_of(const SequenceTable& t, int64_t segment) {
  return t.starts[segment + 1] - t.starts[segment];
}
// The end of what goes on from it, which comes right behind it.
static inline int64_t subtree_end(const SequenceTable& t, int64_t segment) {
  int64_t end = segment + 1;
  while (t.parents != nullptr && end < t.count && t.parents[end] >= segment) ++end;
  return end;
}
static inline bool goes_on(const SequenceTable& t, int64_t segment) {
  return subtree_end(t, segment) > segment + 1;
}
// How many segments go on where it ends.
static inline int64_t children_of(const SequenceTable& t, int64_t segment) {
  int64_t count = 0;
  for (int64_t s = segment + 1, end = subtree_end(t, segment); s < end; ++s)
    count += t.parents[s] == segment ? 1 : 0;
  return count;
}
static inline bool is_last_child(const SequenceTable& t, int64_t segment) {
  const int64_t next = subtree_end(t, segment);
  return next == t.count || t.parents[next] != t.parents[segment];
}
// A number of its own for a segment that several go on from, below that of segments that are not the first to
// go on: those are counted up to its second one.
static inline int64_t fork_number(const SequenceTable& t, int64_t segment) {
  int64_t count = 0;
  for (int64_t s = 1, second = subtree_end(t, segment + 1); s < second; ++s)
    count += t.parents[s] >= 0 && t.parents[s] + 1 < s ? 1 : 0;
  return count;
}

}  // namespace plimsoll
