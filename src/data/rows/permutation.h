// Shuffling without a table: a permutation of [0, n) computed element by element from a key. Any position of
// any epoch can be asked for at once, so a run resumes from two integers, and a billion rows cost no memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace plimsoll {

// SplitMix64's finaliser: every input bit reaches every output bit.
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9E37'79B9'7F4A'7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58'476D'1CE4'E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D0'49BB'1331'11EBU;
  return x ^ (x >> 31U);
}

// The purposes of this folder's random numbers: each has its own stream.
enum class Stream : uint64_t { hold_out = 1, groups = 2, rows = 3, drawn = 4 };

constexpr uint64_t stream_key(uint64_t seed, Stream stream, int64_t epoch = 0, int64_t window = 0) {
  uint64_t key = mix_bits(seed);
  for (const uint64_t part :
       {static_cast<uint64_t>(stream), static_cast<uint64_t>(epoch), static_cast<uint64_t>(window)})
    key = mix_bits(key ^ part);
  return key;
}

// A Feistel network over the next power of four, walked until it lands inside [0, n): on average below four
// rounds of the network, less than two for most n.
class Permutation {
 public:
  Permutation(int64_t size, uint64_t key)
      : size_(static_cast<uint64_t>(size)),
        key_(key),
        half_bits_(
            std::max(1U, (static_cast<unsigned>(std::bit_width(size_ > 0 ? size_ - 1 : 0)) + 1U) / 2U)) {}

  // 0 <= index < size.
  int64_t operator()(int64_t index) const {
    auto value = static_cast<uint64_t>(index);
    do value = encrypt(value);
    while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  // Four rounds suffice for a pseudo-random permutation (Luby and Rackoff); halves of few bits want some
  // more.
  static constexpr unsigned kRounds = 8;

  [[nodiscard]] uint64_t encrypt(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (unsigned round = 0; round < kRounds; ++round) {
      left ^= mix_bits(key_ ^ (right << 8U | round)) & mask;
      std::swap(left, right);
    }
    return left << half_bits_ | right;
  }

  uint64_t size_;
  uint64_t key_;
  unsigned half_bits_;
};

}  // namespace plimsoll
