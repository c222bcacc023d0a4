// The contents of the gated delta rule's workspace on a GPU: a fact that rule and kernels share.
#pragma once

#include <cstdint>

#include "ops/delta/delta_rule_blocking.h"

namespace plimsoll {

inline constexpr int64_t kDeltaTileKeys = 64;  // of a block that makes gradients of rows
inline constexpr int64_t delta_gpu_key_tiles(const DeltaShape& s) {
  return (s.key_dim + kDeltaTileKeys - 1) / kDeltaTileKeys;
}
// Keys of a state that is carried from token to token, in a block's registers.
inline constexpr int64_t kDeltaStateKeys = 256;

// Chunks that are worked on at once. One sequence goes stretch by stretch, so that its workspace grows by no more
// than a state for each; several go at once, and so do trees.
inline constexpr int64_t delta_gpu_chunks(const DeltaShape& s) {
  const bool alone = s.sequences == 1 && !s.trees;
  return alone ? (s.tokens + kDeltaChunk - 1) / kDeltaChunk : delta_most_chunks(s);
}
inline constexpr int64_t delta_gpu_stretch(const DeltaShape& s) {
  constexpr int64_t kBlocks = 256;  // of a kernel with one for each chunk and head, so that a card is busy
  const int64_t busy = (kBlocks + s.heads - 1) / s.heads, all = delta_gpu_chunks(s);
  const int64_t by_shape = busy > kDeltaGroup ? busy : kDeltaGroup;
  const int64_t wanted = s.chunks_at_once > 0 ? s.chunks_at_once : by_shape;
  return s.sequences == 1 && !s.trees && wanted < all ? wanted : all;
}
inline constexpr int64_t delta_gpu_stretches(const DeltaShape& s) {
  return (delta_gpu_chunks(s) + delta_gpu_stretch(s) - 1) / delta_gpu_stretch(s);
}
// Tokens of a stretch.
inline constexpr int64_t delta_gpu_rows(const DeltaShape& s) {
  return delta_gpu_stretches(s) > 1 ? delta_gpu_stretch(s) * kDeltaChunk : s.tokens;
}
// States between stretches that have a place: those that the one at hand begins and ends with, or `all`.
inline constexpr int64_t delta_gpu_between(const DeltaShape& s, bool all) {
  const int64_t between = delta_gpu_stretches(s) - 1;
  return all || between < 2 ? between : 2;
}

// Places for states. Nothing stands before a sequence's first chunk, and nothing follows its last one, so
// that the others have places enough among whole chunks of all tokens, however many sequences there are. In
// trees each chunk may have one. Of a sequence in stretches: those within a stretch, then those between them.
inline constexpr int64_t delta_gpu_places(const DeltaShape& s, bool all) {
  if (delta_gpu_stretches(s) > 1) return delta_gpu_stretch(s) - 1 + delta_gpu_between(s, all);
  return s.trees ? delta_most_chunks(s) : s.tokens / kDeltaChunk;
}

// The offsets of its parts, all f32, in bytes. A slot: a chunk of a sequence. Rows: tokens of a stretch.
struct DeltaGpuForward {
  int64_t q_factors, k_factors;  // [tokens, Hk]: what makes unit rows of q and k, and q's other factor
  int64_t high, low;             // [tokens, Hv]: sums of g within the chunk, in two parts
  int64_t from_start, to_end;    // [tokens, Hv]: decays since the chunk's start, and to its end
  int64_t inverses, scores;      // [rows, Hv, 64]: rows of (I + L)^-1, and of q k^T with decays
  int64_t u;                     // [rows, Hv, Dv]: what is put into the state
  int64_t states;                // [places, Hv, Dk, Dv]: where chunks start
  int64_t bytes;
};
// Behind the forward's parts; scores and inverses have been read when weights of the chunk's rows, in gradients
// of q and of k, take their places.
struct DeltaGpuBackward {
  int64_t d_r;                 // [rows, Hv, Dv]: gradients of the right sides of the equations
  int64_t d_states;            // [places, Hv, Dk, Dv]: behind chunks
  int64_t d_sums, d_beta;      // [tokens, Hv]: of g and of beta, as far as rows give them
  int64_t row_parts;           // [tiles of keys, tokens, Hv, 3]: what states add to both
  int64_t state_parts;         // [tiles of keys, slots, Hv]: products of a state and its gradient
  int64_t d_q_rows, d_k_rows;  // [rows, Hk, Dk]: gradients of unit rows
  int64_t bytes;               // of the forward's too
};

// Hands out parts that begin at multiples of 16 bytes.
struct DeltaGpuParts {
  int64_t end = 0;

  constexpr int64_t take(int64_t floats) {
    const int64_t begin = end;
    end += (floats * int64_t{sizeof(float)} + 15) / 16 * 16;
    return begin;
  }
};
inline constexpr int64_t delta_gpu_states(const DeltaShape& s, bool all) {
  return delta_gpu_places(s, all) * s.heads * s.key_dim * s.value_dim;
}

// `all`: the states before all stretches are kept, for the way back.
inline constexpr DeltaGpuForward delta_gpu_forward(const DeltaShape& s, bool all = false) {
  const int64_t gates = s.tokens * s.heads, keys = s.tokens * s.key_heads;
  const int64_t rows = delta_gpu_rows(s) * s.heads;
  DeltaGpuParts parts;
  DeltaGpuForward at{};
  at.q_factors = parts.take(keys);
  at.k_factors = parts.take(keys);
  at.high = parts.take(gates);
  at.low = parts.take(gates);
  at.from_start = parts.take(gates);
  at.to_end = parts.take(gates);
  at.inverses = parts.take(rows * kDeltaChunk);
  at.scores = parts.take(rows * kDeltaChunk);
  at.u = parts.take(rows * s.value_dim);
  at.states = parts.take(delta_gpu_states(s, all));
  at.bytes = parts.end;
  return at;
}

inline constexpr DeltaGpuBackward delta_gpu_backward(const DeltaShape& s) {
  const int64_t gates = s.tokens * s.heads, rows = delta_gpu_rows(s);
  DeltaGpuParts parts{delta_gpu_forward(s, true).bytes};
  DeltaGpuBackward at{};
  at.d_r = parts.take(rows * s.heads * s.value_dim);
  at.d_states = parts.take(delta_gpu_states(s, false));
  at.d_sums = parts.take(gates);
  at.d_beta = parts.take(gates);
  at.row_parts = parts.take(delta_gpu_key_tiles(s) * gates * 3);
  at.state_parts = parts.take(delta_gpu_key_tiles(s) * delta_most_chunks(s) * s.heads);
  at.d_q_rows = parts.take(rows * s.key_heads * s.key_dim);
  at.d_k_rows = parts.take(rows * s.key_heads * s.key_dim);
  at.bytes = parts.end;
  return at;
}

}  // namespace plimsoll
