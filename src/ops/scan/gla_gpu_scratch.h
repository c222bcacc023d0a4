// The contents of gated linear attention's workspace on a GPU: a fact that rule and kernels share.
#pragma once

#include <cstdint>

#include "ops/scan/gla_blocking.h"

namespace plimsoll {

// Row lengths of what the kernels keep: whole packs of 16 bytes.
inline constexpr int64_t gla_gpu_row(int64_t dim) { return (dim + 7) / 8 * 8; }

// Parts of a state that blocks have, each way.
inline constexpr int64_t gla_gpu_tiles(int64_t dim) { return (gla_gpu_row(dim) + 63) / 64; }

// Keys of a state that is carried from token to token, in a block's registers.
inline constexpr int64_t kGlaStateKeys = 256;
// Bytes that its blocks hand to one another: outputs f32 [tiles of keys, tokens, N, Dv], if there are several
// tiles.
inline constexpr int64_t gla_gpu_cached_scratch_bytes(const GlaShape& s) {
  const int64_t tiles = (s.key_dim + kGlaStateKeys - 1) / kGlaStateKeys;
  return tiles == 1 ? 0 : tiles * s.tokens * s.heads * s.value_dim * int64_t{sizeof(float)};
}

// Places for states. Nothing stands before a sequence's first chunk, and nothing follows its last one, so
// that the others have places enough among whole chunks of all tokens, however many sequences there are. In
// trees each chunk may have one.
inline constexpr int64_t gla_gpu_places(const GlaShape& s) {
  return s.trees ? gla_most_chunks(s) : s.tokens / kGlaChunk;
}

// The offsets of its parts, in bytes. T: the element type of the operands, of whose products they are; a
// slot: a chunk of a sequence.
struct GlaGpuScratch {
  int64_t decays;        // f32 [tokens, K, keys]
  int64_t chunk_decays;  // f32 [slots, K, keys]
  int64_t queries;       // T [tokens, N, keys]: with the decays since their chunk's start
  int64_t keys;          // T [tokens, K, keys]: with the decays to their chunk's end
  int64_t scores;        // T [tokens, N, 64]: of a query, with the keys of its chunk
  int64_t states;        // T [places, K, keys, values]: where chunks start
  int64_t forks;         // f32 [forks, K, tiles of 64 keys, of 64 values, 64, 64]: of what walks come back to
  int64_t forward_bytes;
  int64_t d_scores;       // f32 [tokens, N, 64]
  int64_t d_q_of_states;  // f32 [tokens, N, keys]
  int64_t d_k_of_states;  // f32 [tokens, K, keys]
  int64_t d_states;       // T [places, K, keys, values]: behind chunks
  int64_t backward_bytes;
};

inline constexpr GlaGpuScratch gla_gpu_scratch(const GlaShape& s, int64_t type_bytes) {
  constexpr int64_t kFloat = sizeof(float), kTile = 64 * 64;
  const int64_t keys = gla_gpu_row(s.key_dim), slots = gla_most_chunks(s);
  const int64_t scores = s.tokens * s.heads * kGlaChunk;
  const int64_t state_bytes = gla_gpu_places(s) * s.kv_heads * keys * gla_gpu_row(s.value_dim) * type_bytes;
  GlaGpuScratch at{};
  int64_t end = 0;
  const auto take = [&end](int64_t bytes) {
    const int64_t begin = end;
    end += bytes;
    return begin;
  };
  at.decays = take(s.tokens * s.kv_heads * keys * kFloat);
  at.chunk_decays = take(slots * s.kv_heads * keys * kFloat);
  at.queries = take(s.tokens * s.heads * keys * type_bytes);
  at.keys = take(s.tokens * s.kv_heads * keys * type_bytes);
  at.scores = take(scores * type_bytes);
  at.states = take(state_bytes);
  at.forks =
      take(s.forks * s.kv_heads * gla_gpu_tiles(s.key_dim) * gla_gpu_tiles(s.value_dim) * kTile * kFloat);
  at.forward_bytes = end;
  at.d_scores = take(scores * kFloat);
  at.d_q_of_states = take(s.tokens * s.heads * keys * kFloat);
  at.d_k_of_states = take(s.tokens * s.kv_heads * keys * kFloat);
  at.d_states = take(state_bytes);
  at.backward_bytes = end;
  return at;
}

}  // namespace plimsoll
