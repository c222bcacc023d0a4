// Optional steps on a row of logits: a bias over the distance, and dropout of its probabilities. Include it
// only in *_simd.cc files.
#pragma once

#include "ops/attention/attention_bias.h"
#include "ops/attention/attention_blocks.h"
#include "ops/philox_simd.h"

namespace plimsoll::PLIMSOLL_ISA {

// The bias of every head as a vector over the distances, so that a row of logits reads neighbours.
struct BiasVectors {
  int32_t* buckets = nullptr;  // of every distance; null: there is no bias
  float* values = nullptr;     // [N][stride]
  int64_t stride = 0;
  int64_t here = 0;  // where distance 0 lies

  // From the key that lies `distance` away on; null without bias.
  [[nodiscard]] const float* row(int64_t head, int64_t distance) const {
    return values == nullptr ? nullptr : values + head * stride + here + distance;
  }
};

inline BiasVectors bias_vectors(const AttentionShape& shape, float* scratch) {
  const int64_t stride = attention_distance_floats(shape);
  if (stride == 0) return {};
  return {reinterpret_cast<int32_t*>(scratch), scratch + stride, stride, shape.length - 1};
}

// Fills them, shared out over the threads of a parallel region, which wait for each other.
template <class T>
inline void make_bias(const AttentionShape& shape, const T* table, const BiasVectors& bias) {
  if (bias.values == nullptr) return;
  const int64_t distances = attention_distances(shape);
#pragma omp for schedule(static)
  for (int64_t i = 0; i < bias.stride; ++i)
    bias.buckets[i] = i < distances ? static_cast<int32_t>(attention_bucket(shape, i - bias.here)) : 0;
#pragma omp for schedule(static)
  for (int64_t head = 0; head < shape.heads; ++head)
    for (int64_t i = 0; i < bias.stride; ++i)
      bias.values[head * bias.stride + i] =
          i < distances ? widen_value(table[bias.buckets[i] * shape.heads + head]) : 0.0F;
}

// The factors of one row's probabilities, for a block of keys: 0, or 1 / (1 - p).
struct KeptRow {
  float factors[kAttentionKeyBlock];
};
// The numbers of a query and head: heads are 2^23 keys apart, which is more than a sequence has.
inline constexpr int64_t kDropoutKeys = int64_t{1} << 23;

inline void draw_kept(const AttentionDropout& dropout, int64_t token, int64_t head, int64_t key0,
                      KeptRow& kept) {
  const PhiloxStream stream =
      philox_stream(dropout.seed, dropout.scope_hash, static_cast<uint32_t>(dropout.positions[token]),
                    static_cast<uint32_t>(dropout.samples[token]), dropout.step);
  const Vec factor = set1(static_cast<float>(1.0 / (1.0 - dropout.probability)));
  const Words threshold = words(static_cast<uint32_t>(dropout.probability * 4294967296.0));
  uint32_t bits[kAttentionKeyBlock];
  philox_chunk32(stream, (head * kDropoutKeys + key0) / kAttentionKeyBlock, bits);
  for (int64_t c = 0; c < kAttentionKeyBlock; c += Vec::kWidth)
    store(kept.factors + c, keep_where_at_least(factor, load_words(bits + c), threshold));
}

}  // namespace plimsoll::PLIMSOLL_ISA
