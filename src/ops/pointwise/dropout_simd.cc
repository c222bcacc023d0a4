#include "ops/philox_simd.h"
#include "ops/pointwise/dropout_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kChunk = 64;  // elements of one philox_chunk32

template <class T>
void drop_token(const Dropout<T>& a, int64_t token) {
  const PhiloxStream stream = philox_stream(a.seed, a.scope_hash, static_cast<uint32_t>(a.positions[token]),
                                            static_cast<uint32_t>(a.samples[token]), a.step);
  const Vec factor = set1(static_cast<float>(1.0 / (1.0 - a.probability)));
  // An element is dropped when its 32 bits are below p * 2^32.
  const Words threshold = words(static_cast<uint32_t>(a.probability * 4294967296.0));
  for (int64_t begin = 0; begin < a.width; begin += kChunk) {
    uint32_t bits[kChunk];
    philox_chunk32(stream, begin / kChunk, bits);
    const int64_t at = token * a.width + begin;
    for_lanes(begin + kChunk < a.width ? kChunk : a.width - begin, [&](int64_t i, auto lanes) {
      lanes.put(a.y + at + i,
                keep_where_at_least(lanes.get(a.x + at + i) * factor, load_words(bits + i), threshold));
    });
  }
}

template <class T>
void drop(const Dropout<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t token = 0; token < a.tokens; ++token) drop_token(a, token);
}

}  // namespace

void dropout(const Dropout<float>& a) { drop(a); }
void dropout(const Dropout<uint16_t>& a) { drop(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
