// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011): random
// bits as a function of what they are for, so that no split of the work, no order and no instruction set
// changes them. Functions are static: see ops/attention/attention_blocking.h;
// constexpr so that kernels of GPUs have them too.
#pragma once

#include <cstdint>

namespace plimsoll {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53U;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57U;
inline constexpr uint32_t kPhiloxKeyStep0 = 0x9E3779B9U;
inline constexpr uint32_t kPhiloxKeyStep1 = 0xBB67AE85U;
inline constexpr int kPhiloxRounds = 10;

// The key and three of the four counter words; the first counter word runs over the elements.
struct PhiloxStream {
  uint32_t key0 = 0, key1 = 0;
  uint32_t counter1 = 0, counter2 = 0, counter3 = 0;
};

// Key of a run's seed and of a name's hash; the seed is mixed first (splitmix64), as seeds are small numbers.
static constexpr PhiloxStream philox_stream(uint64_t seed, uint64_t name_hash, uint32_t counter1,
                                            uint32_t counter2, uint32_t counter3) {
  uint64_t z = seed + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  const uint64_t key = (z ^ (z >> 31)) ^ name_hash;
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), counter1, counter2, counter3};
}

// The four words of one counter value.
static constexpr void philox(const PhiloxStream& stream, uint32_t counter0, uint32_t (&out)[4]) {
  uint32_t c[4] = {counter0, stream.counter1, stream.counter2, stream.counter3};
  uint32_t key0 = stream.key0;
  uint32_t key1 = stream.key1;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * c[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier1} * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1;
    c[3] = static_cast<uint32_t>(a);
    key0 += kPhiloxKeyStep0;
    key1 += kPhiloxKeyStep1;
  }
  for (int i = 0; i < 4; ++i) out[i] = c[i];
}

// Gives elements their bits so that a register of 16 counters serves neighbouring elements: 32 bits each, 64
// elements to 16 counters.
static constexpr uint32_t philox_bits32(const PhiloxStream& stream, int64_t element) {
  uint32_t words[4];
  philox(stream, static_cast<uint32_t>(element / 64 * 16 + element % 16), words);
  return words[element / 16 % 4];
}
// 16 bits each, 128 elements to 16 counters.
static constexpr uint32_t philox_bits16(const PhiloxStream& stream, int64_t element) {
  uint32_t words[4];
  philox(stream, static_cast<uint32_t>(element / 128 * 16 + element % 16), words);
  return words[element / 16 % 4] >> (element / 64 % 2 * 16) & 0xFFFFU;
}

}  // namespace plimsoll
