// Raw CPU kernels of gated linear attention over sequences of any lengths.
//
// Shapes: T tokens, N query heads, K key-value heads (N a multiple of K), Dk and Dv the head sizes of keys
// and values. q [T, N, Dk], k and gate [T, K, Dk], v [T, K, Dv], o [T, N, Dv]; dense, row-major, bf16
// (uint16_t) or f32, with f32 arithmetic inside. With g = max(log sigmoid(gate) / normalizer, clamp_min), the
// log of a decay:
//   S_t = diag(exp g_t) S_t-1 + k_t^T v_t,   o_t = scale q_t S_t,   S = 0 before every sequence.
//
// Of trees, a segment's first state is its parent's last one, and the gradient of a segment's last state is
// the sum over those that continue it.
//
// Sequences go chunk by chunk (gla_blocking.h), segments from their own beginning on. Decays enter only as
// products of factors that are at most 1, between a row and the one that it is referred to, so no gate
// overflows or loses digits.
//
// Bits depend on nothing but a sequence's own data and where its segments part: not on the batch around it,
// not on the threads.
#pragma once

#include <cstdint>

#include "ops/attention/attention_kernels.h"
#include "ops/scan/gla_blocking.h"

namespace plimsoll {

struct GlaProblem {
  GlaShape shape;
  float scale = 1.0F;
  float normalizer = 1.0F;
  float clamp_min = -1e30F;
};

template <class T>
struct GlaForward {
  GlaProblem problem;
  SequenceTable sequences;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const T* gate = nullptr;
  T* o = nullptr;
  void* scratch = nullptr;  // gla_forward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
};

template <class T>
struct GlaBackward {
  GlaProblem problem;
  SequenceTable sequences;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const T* gate = nullptr;
  const T* d_o = nullptr;
  T* d_q = nullptr;
  T* d_k = nullptr;
  T* d_v = nullptr;
  T* d_gate = nullptr;
  void* scratch = nullptr;  // gla_backward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
};

// Generation: the next `live` tokens of one sequence, whose state is read and updated.
template <class T>
struct GlaCached {
  GlaProblem problem;
  int64_t live = 0;
  bool fresh = false;  // the state counts as zero: the sequence begins
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const T* gate = nullptr;
  T* o = nullptr;
  float* state = nullptr;   // [K, Dk, Dv]
  void* scratch = nullptr;  // gla_forward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
};

#define PLIMSOLL_GLA_KERNELS(isa)                  \
  namespace isa {                                  \
  void gla_forward(const GlaForward<float>&);      \
  void gla_forward(const GlaForward<uint16_t>&);   \
  void gla_backward(const GlaBackward<float>&);    \
  void gla_backward(const GlaBackward<uint16_t>&); \
  void gla_cached(const GlaCached<float>&);        \
  void gla_cached(const GlaCached<uint16_t>&);     \
  }
PLIMSOLL_GLA_KERNELS(avx2)
PLIMSOLL_GLA_KERNELS(avx512)
PLIMSOLL_GLA_KERNELS(avx512_bf16)
PLIMSOLL_GLA_KERNELS(avx2_f16)
#undef PLIMSOLL_GLA_KERNELS

}  // namespace plimsoll
