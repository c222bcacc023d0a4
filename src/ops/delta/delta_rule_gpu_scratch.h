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

// Places for states. Nothing stands before a sequence's first chunk, and nothing follows its last one, so
// that the others have places enough among whole chunks of all tokens, however many sequences there are. In
// trees each chunk may have one.
inline constexpr int64_t delta_gpu_places(const DeltaShape& s) {
  return s.trees ? delta_most_chunks(s) : s.tokens / kDeltaChunk;
}

// The offsets of its parts, all f32, in bytes. A slot: a chunk of a sequence.
struct DeltaGpuForward {
  int64_t q_factors, k_factors;  // [tokens, Hk]: what makes unit rows of q and k, and q's other factor
  int64_t high, low;             // [tokens, Hv]: sums of g within the chunk, in two parts
  int64_t from_start, to_end;    // [tokens, Hv]: decays since the chunk's start, and to its end
  int64_t inverses, scores;      // [tokens, Hv, 64]: rows of (I + L)^-1, and of q k^T with decays
  int64_t u;                     // [tokens, Hv, Dv]: what is put into the state
  int64_t states;                // [places, Hv, Dk, Dv]: where chunks start
  int64_t bytes;
};
// Behind the forward's parts; scores and inverses have been read when weights of the chunk's rows, in gradients
// of q and of k, take their places.
struct DeltaGpuBackward {
  int64_t d_r;                 // [tokens, Hv, Dv]: gradients of the right sides of the equations
  int64_t d_states;            // [places, Hv, Dk, Dv]: behind chunks
  int64_t d_sums, d_beta;      // [tokens, Hv]: of g and of beta, as far as rows give them
  int64_t row_parts;           // [tiles of keys, tokens, Hv, 3]: what states add to both
  int64_t state_parts;         // [tiles of keys, slots, Hv]: products of a state and its gradient
  int64_t d_q_rows, d_k_rows;  // [tokens, Hk, Dk]: gradients of unit rows
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
inline constexpr int64_t delta_gpu_states(const DeltaShape& s) {
  return delta_gpu_places(s) * s.heads * s.key_dim * s.value_dim;
}

inline constexpr DeltaGpuForward delta_gpu_forward(const DeltaShape& s) {
  const int64_t gates = s.tokens * s.heads, keys = s.tokens * s.key_heads;
  DeltaGpuParts parts;
  DeltaGpuForward at{};
  at.q_factors = parts.take(keys);
  at.k_factors = parts.take(keys);
  at.high = parts.take(gates);
  at.low = parts.take(gates);
  at.from_start = parts.take(gates);
  at.to_end = parts.take(gates);
  at.inverses = parts.take(gates * kDeltaChunk);
  at.scores = parts.take(gates * kDeltaChunk);
  at.u = parts.take(gates * s.value_dim);
  at.states = parts.take(delta_gpu_states(s));
  at.bytes = parts.end;
  return at;
}

inline constexpr DeltaGpuBackward delta_gpu_backward(const DeltaShape& s) {
  const int64_t gates = s.tokens * s.heads, keys = s.tokens * s.key_heads;
  DeltaGpuParts parts{delta_gpu_forward(s).bytes};
  DeltaGpuBackward at{};
  at.d_r = parts.take(gates * s.value_dim);
  at.d_states = parts.take(delta_gpu_states(s));
  at.d_sums = parts.take(gates);
  at.d_beta = parts.take(gates);
  at.row_parts = parts.take(delta_gpu_key_tiles(s) * gates * 3);
  at.state_parts = parts.take(delta_gpu_key_tiles(s) * delta_most_chunks(s) * s.heads);
  at.d_q_rows = parts.take(keys * s.key_dim);
  at.d_k_rows = parts.take(keys * s.key_dim);
  at.bytes = parts.end;
  return at;
}

}  // namespace plimsoll
