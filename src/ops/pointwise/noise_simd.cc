#include "ops/philox_simd.h"
#include "ops/pointwise/noise_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kChunk = 64;  // elements of one philox_chunk32

template <class T>
void add_noise(const EmbeddingNoise<T>& a, int64_t token) {
  const double elements = static_cast<double>(a.lengths[token]) * static_cast<double>(a.width);
  const auto most = static_cast<float>(a.alpha / __builtin_sqrt(elements) / 2147483648.0);
  const PhiloxStream stream = philox_stream(a.seed, a.scope_hash, static_cast<uint32_t>(a.positions[token]),
                                            static_cast<uint32_t>(a.samples[token]), a.step);
  for (int64_t begin = 0; begin < a.width; begin += kChunk) {
    uint32_t bits[kChunk];
    float noise[kChunk];
    philox_chunk32(stream, begin / kChunk, bits);
    for (int64_t i = 0; i < kChunk; ++i) noise[i] = most * static_cast<float>(static_cast<int32_t>(bits[i]));
    const int64_t at = token * a.width + begin;
    for_lanes(begin + kChunk < a.width ? kChunk : a.width - begin, [&](int64_t i, auto lanes) {
      lanes.put(a.y + at + i, lanes.get(a.x + at + i) + lanes.get(noise + i));
    });
  }
}

template <class T>
void copy_row(const EmbeddingNoise<T>& a, int64_t token) {
  for (int64_t i = token * a.width; a.x != a.y && i < (token + 1) * a.width; ++i) a.y[i] = a.x[i];
}

template <class T>
void add_all(const EmbeddingNoise<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t token = 0; token < a.tokens; ++token)
    if (a.lengths[token] > 0)
      add_noise(a, token);
    else
      copy_row(a, token);
}

}  // namespace

void embedding_noise(const EmbeddingNoise<float>& a) { add_all(a); }
void embedding_noise(const EmbeddingNoise<uint16_t>& a) { add_all(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
