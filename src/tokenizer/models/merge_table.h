// BPE merges: a pair of ids -> rank and id of the joined piece. Open addressing, 16 bytes a slot: a lookup is
// one cache line, and lookups are what BPE spends its time on.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll {

struct Merge {
  int32_t rank;
  int32_t id;
};

class MergeTable {
 public:
  explicit MergeTable(size_t count) : slots_(std::bit_ceil(count + count / 2 + 1)) {}

  // A pair inserted twice keeps its last merge. At most `count` pairs may be inserted.
  void insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[slot_of(left, right)];
    slot = {left, right, merge};
  }

  // Null where the pair does not merge.
  [[nodiscard]] const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[slot_of(left, right)];
    return slot.left < 0 ? nullptr : &slot.merge;
  }

  // Has the pair's slot come into the cache while others are looked up.
  void prefetch(int32_t left, int32_t right) const {
    __builtin_prefetch(&slots_[first_slot_of(left, right)]);
  }

  // Calls f(left, right) for every pair, in no particular order.
  template <typename F>
  void for_each(F f) const {
    for (const Slot& slot : slots_)
      if (slot.left >= 0) f(slot.left, slot.right);
  }

  [[nodiscard]] int64_t resident_bytes() const {
    return static_cast<int64_t>(slots_.capacity() * sizeof(Slot));
  }

 private:
  struct Slot {
    int32_t left = -1;  // -1: empty
    int32_t right = -1;
    Merge merge{};
  };

  // Multiplicative hashing by 2^64 divided by the golden ratio; the high bits are the mixed ones.
  [[nodiscard]] size_t first_slot_of(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15U) >> 32) & (slots_.size() - 1);
  }
  [[nodiscard]] size_t slot_of(int32_t left, int32_t right) const {
    const size_t mask = slots_.size() - 1;
    size_t i = first_slot_of(left, right);
    while (slots_[i].left >= 0 && (slots_[i].left != left || slots_[i].right != right)) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace plimsoll
