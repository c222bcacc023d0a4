// The ids of words seen before, one cache per thread: no locks, no allocation after the first word, fixed
// size.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace plimsoll {

// A number no other model of this process has.
inline uint64_t next_model_serial() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

class WordCache {
 public:
  static constexpr size_t kLongestWord = 30;
  static constexpr size_t kMostIds = 8;
  // Direct-mapped: a new word replaces the one in its slot. 64 bytes each, 1 MiB in all.
  static constexpr size_t kSlots = 1 << 14;
  static constexpr int64_t kBytes = int64_t{kSlots} * 64;

  // This thread's cache, emptied if another model (`owner`, never 0) used it last.
  static WordCache& of_thread(uint64_t owner) {
    thread_local WordCache cache;
    if (cache.owner_ != owner) {
      cache.slots_.assign(kSlots, Slot{});
      cache.owner_ = owner;
    }
    return cache;
  }

  // Eight bytes at a time, the last ones maybe once more.
  static size_t slot_of(std::string_view word) {
    const char* const begin = word.data();
    const size_t size = word.size();
    uint64_t hash = size;
    if (size >= 8) {
      for (size_t i = 0; i + 8 < size; i += 8) hash = mixed(hash ^ load<uint64_t>(begin + i));
      hash ^= load<uint64_t>(begin + size - 8);
    } else if (size >= 4) {
      hash ^= uint64_t{load<uint32_t>(begin)} << 32 | load<uint32_t>(begin + size - 4);
    } else {
      for (const char c : word) hash = hash << 8 | static_cast<unsigned char>(c);
    }
    return mixed(hash) % kSlots;
  }
  // The word's slot, which is prefetched into the processor's cache.
  [[nodiscard]] size_t prefetch(std::string_view word) const {
    const size_t slot = slot_of(word);
    __builtin_prefetch(&slots_[slot]);
    return slot;
  }

  // The word's ids; empty if they are not known. Valid until the next put.
  [[nodiscard]] std::span<const int32_t> find(std::string_view word, size_t at) const {
    if (word.size() > kLongestWord) return {};
    const Slot& slot = slots_[at];
    const bool hit = std::string_view(slot.word.data(), slot.length) == word;
    return hit ? std::span(slot.ids).first(slot.count) : std::span<const int32_t>();
  }
  [[nodiscard]] std::span<const int32_t> find(std::string_view word) const {
    return find(word, slot_of(word));
  }

  // Remembers `ids`, if word and ids are short enough to be worth it.
  void put(std::string_view word, size_t at, std::span<const int32_t> ids) {
    if (word.size() > kLongestWord || ids.size() > kMostIds) return;
    Slot& slot = slots_[at];
    slot.length = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(ids.size());
    std::copy(word.begin(), word.end(), slot.word.begin());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }
  void put(std::string_view word, std::span<const int32_t> ids) { put(word, slot_of(word), ids); }

 private:
  struct alignas(64) Slot {  // a line of the processor's cache
    uint8_t length = 0;
    uint8_t count = 0;
    std::array<char, kLongestWord> word{};
    std::array<int32_t, kMostIds> ids{};
  };
  static_assert(sizeof(Slot) == 64);

  template <class T>
  static T load(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  // By 2^64 divided by the golden ratio.
  static uint64_t mixed(uint64_t value) {
    value *= 0x9E3779B97F4A7C15U;
    return value ^ value >> 32;
  }

  uint64_t owner_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace plimsoll
