// Shapes and blocking of the gated delta rule, from which its scratch follows: a fact that rule and kernels
// share. Functions are static: a kernel file's copy, compiled for one instruction set, must never be the one
// the linker keeps for everybody.
#pragma once

#include <cstdint>

namespace plimsoll {

struct DeltaShape {
  int64_t tokens = 0, sequences = 0;   // capacity of the token axis; of the cached op: one sequence
  int64_t heads = 0, key_heads = 0;    // of v, g and beta; of q and k
  int64_t key_dim = 0, value_dim = 0;  // of one head
  bool trees = false;
  int64_t forks = 0;           // of trees: segments at most that fork
  int64_t chunks_at_once = 0;  // on a GPU, of one sequence; 0: by the shape (delta_gpu_stretch)
};

inline constexpr int64_t kDeltaChunk = 64;  // rows that are solved for at once
inline constexpr int64_t kDeltaSub = 16;    // of those, rows whose triangle is inverted
inline constexpr int64_t kDeltaGroup = 8;   // chunks whose states are kept at once

// Row lengths of f32 buffers: whole registers of either instruction set.
static inline constexpr int64_t delta_keys(const DeltaShape& s) { return (s.key_dim + 15) / 16 * 16; }
static inline constexpr int64_t delta_values(const DeltaShape& s) { return (s.value_dim + 15) / 16 * 16; }
static inline constexpr int64_t delta_group(const DeltaShape& s) { return s.heads / s.key_heads; }
static inline constexpr int64_t delta_state(const DeltaShape& s) { return delta_keys(s) * delta_values(s); }
// Every sequence may end in a chunk that is not full.
static inline constexpr int64_t delta_most_chunks(const DeltaShape& s) {
  return s.tokens / kDeltaChunk + s.sequences;
}
static inline constexpr int64_t delta_most_groups(const DeltaShape& s) {
  return (delta_most_chunks(s) + kDeltaGroup - 1) / kDeltaGroup;
}

// Threads that find work: forward one takes a value head of a sequence (of a tree), backward all value heads
// of a key head.
static inline constexpr int64_t delta_workers(int64_t heads, const DeltaShape& s, int threads) {
  const int64_t tasks = heads * s.sequences;
  return tasks < threads ? tasks : threads;
}

// A chunk's rows, in floats. Forward: k, its transposed form, k with decays, q; values of the step, two
// buffers; a chunk's products with k, with q, and their decays; inverted triangles.
static inline constexpr int64_t delta_forward_rows(const DeltaShape& s) {
  return kDeltaChunk * (4 * delta_keys(s) + 3 * delta_values(s) + 3 * kDeltaChunk + kDeltaSub);
}
// Backward: k, its transposed form, k with decays, q, two buffers of key rows; d_o and the step's gradient,
// both transposed too, the step's values transposed, and one buffer; products with k and q, the triangle,
// decays, gradients of both products; inverted triangles; gradients of a group's q and k; values of the step
// of a group's chunks, two forms.
static inline constexpr int64_t delta_backward_rows(const DeltaShape& s) {
  return kDeltaChunk * (6 * delta_keys(s) + 6 * delta_values(s) + 6 * kDeltaChunk + kDeltaSub) +
         kDeltaGroup * kDeltaChunk * 2 * (delta_keys(s) + delta_values(s));
}

// A worker's floats: forward a state, and those behind segments that fork. Backward, for each
// value head of a key head, the states that groups begin with, the gradient of one, and at forks both; and a
// running state and those of a group's chunks.
static inline constexpr int64_t delta_forward_floats(const DeltaShape& s) {
  return delta_forward_rows(s) + (1 + s.forks) * delta_state(s);
}
static inline constexpr int64_t delta_backward_floats(const DeltaShape& s) {
  const int64_t states = delta_group(s) * (delta_most_groups(s) + 1 + 2 * s.forks) + 1 + kDeltaGroup;
  return delta_backward_rows(s) + states * delta_state(s);
}
static inline constexpr int64_t delta_forward_scratch_bytes(const DeltaShape& s, int threads) {
  return 4 * delta_workers(s.heads, s, threads) * delta_forward_floats(s);
}
static inline constexpr int64_t delta_backward_scratch_bytes(const DeltaShape& s, int threads) {
  return 4 * delta_workers(s.key_heads, s, threads) * delta_backward_floats(s);
}

}  // namespace plimsoll
