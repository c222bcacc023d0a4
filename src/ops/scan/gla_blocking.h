// Shapes and blocking of gated linear attention, from which its scratch follows: a fact that rule and kernels
// share. Functions are static: a kernel file's copy, compiled for one instruction set, must never be the one
// the linker keeps for everybody.
#pragma once

#include <cstdint>

namespace plimsoll {

struct GlaShape {
  int64_t tokens = 0, sequences = 0;  // capacity of the token axis; of the cached op: one sequence
  int64_t heads = 0, kv_heads = 0;
  int64_t key_dim = 0, value_dim = 0;  // of one head
  bool trees = false;
  int64_t forks = 0;  // of trees: segments at most that several go on from
};

inline constexpr int64_t kGlaChunk = 64;     // rows whose scores are computed at once
inline constexpr int64_t kGlaSub = 16;       // of those, rows that share a reference for their decays
inline constexpr int64_t kGlaGroup = 8;      // chunks whose states are kept at once
inline constexpr int64_t kGlaColumns = 128;  // of a state, that one thread carries from chunk to chunk

// Row lengths of f32 buffers: whole registers of either instruction set.
static inline constexpr int64_t gla_keys(const GlaShape& s) { return (s.key_dim + 15) / 16 * 16; }
static inline constexpr int64_t gla_values(const GlaShape& s) { return (s.value_dim + 15) / 16 * 16; }
static inline constexpr int64_t gla_group(const GlaShape& s) { return s.heads / s.kv_heads; }
static inline constexpr int64_t gla_state(const GlaShape& s) { return gla_keys(s) * gla_values(s); }
// Every sequence may end in a chunk that is not full.
static inline constexpr int64_t gla_most_chunks(const GlaShape& s) {
  return s.tokens / kGlaChunk + s.sequences;
}
static inline constexpr int64_t gla_most_groups(const GlaShape& s) {
  return (gla_most_chunks(s) + kGlaGroup - 1) / kGlaGroup;
}

// The workspace of one thread, in floats. Forward: decays, k, v, q, o; three buffers of key rows, one of them
// transposed; scores. Backward: decays and two products of them, k, q, their gradients and the gate's, four
// buffers of key rows; v, d_v, d_o, v and d_o transposed; scores and their gradients; two sums over keys.
static inline constexpr int64_t gla_forward_thread_floats(const GlaShape& s) {
  return kGlaChunk * (7 * gla_keys(s) + 2 * gla_values(s) + kGlaChunk);
}
static inline constexpr int64_t gla_backward_thread_floats(const GlaShape& s) {
  return kGlaChunk * (12 * gla_keys(s) + 5 * gla_values(s) + 2 * kGlaChunk) + 2 * gla_keys(s);
}

// The states that chunks start from: the running one, a group's, and those at forks.
static inline constexpr int64_t gla_forward_scratch_bytes(const GlaShape& s, int threads) {
  return 4 * ((1 + kGlaGroup + s.forks) * s.kv_heads * gla_state(s) + threads * gla_forward_thread_floats(s));
}
// States at the start of every group; the running ones of both directions, a group's and those at forks of
// both.
static inline constexpr int64_t gla_backward_scratch_bytes(const GlaShape& s, int threads) {
  return 4 * ((gla_most_groups(s) + 2 * (1 + kGlaGroup + s.forks)) * s.kv_heads * gla_state(s) +
              threads * gla_backward_thread_floats(s));
}

}  // namespace plimsoll
