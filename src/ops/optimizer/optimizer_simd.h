// Helpers that the optimizers' kernels share: rounding to the type of a weight or state. Include it only in
// *_simd.cc files.
#pragma once

#include "ops/optimizer/optimizer_kernels.h"
#include "ops/philox_simd.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {

inline constexpr int64_t kRandomChunk = 128;  // elements of one philox_chunk16

// The value of a weight that random bits are for; a word of the counter.
enum class Stream : uint32_t { weight, m, v };

inline PhiloxStream random_stream(uint64_t seed, uint64_t name_hash, int64_t step, Stream which) {
  const auto bits = static_cast<uint64_t>(step);
  return philox_stream(seed, name_hash, static_cast<uint32_t>(which), static_cast<uint32_t>(bits),
                       static_cast<uint32_t>(bits >> 32));
}
template <class P, class G>
PhiloxStream random_stream(const WeightUpdate<P, G>& u, Stream which) {
  return random_stream(u.step.seed, u.name_hash, u.step.step, which);
}

// Rounds what is stored as bf16 by random bits; leaves f32 alone.
template <class T>
class Rounder;
template <>
class Rounder<float> {
 public:
  Rounder(const PhiloxStream&, int64_t) {}
  Vec operator()(Vec x, int64_t) const { return x; }
};
template <>
class Rounder<uint16_t> {
 public:
  Rounder(const PhiloxStream& stream, int64_t chunk) { philox_chunk16(stream, chunk, bits_); }
  // `i` counts from the chunk's first element.
  Vec operator()(Vec x, int64_t i) const { return with_random_tail(x, load_words(bits_ + i)); }

 private:
  uint32_t bits_[kRandomChunk];
};

inline Vec broadcast(double x) { return set1(static_cast<float>(x)); }

// visit(begin, count) for the chunks of `count` elements, shared among threads.
template <class Visit>
void for_chunks(int64_t count, int64_t chunk, int threads, Visit visit) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t begin = 0; begin < count; begin += chunk)
    visit(begin, begin + chunk < count ? chunk : count - begin);
}

// Stores a weight, and its bf16 copy where there is one.
template <class P, class G, class Lanes>
void put_weight(const WeightUpdate<P, G>& u, const Rounder<P>& round, Lanes lanes, int64_t at,
                int64_t in_chunk, Vec weight) {
  lanes.put(u.weight + at, round(weight, in_chunk));
  if (u.copy != nullptr) lanes.put(u.copy + at, weight);
}

}  // namespace plimsoll::PLIMSOLL_ISA
