// Raw CPU kernels of the gated delta rule over sequences of any lengths.
//
// Shapes: T tokens, Hk key heads, Hv value heads (a multiple of Hk), Dk and Dv the head sizes of keys and
// values. q, k [T, Hk, Dk], v, o [T, Hv, Dv] bf16 or f16 (uint16_t) or f32; g and beta f32 [T, Hv]; dense,
// row-major, with f32 arithmetic inside. With q and k of length 1 and q divided by sqrt(Dk):
//   S <- e^g S,   u = beta (v - S^T k),   S <- S + k u^T,   o = S^T q,   S = 0 before every sequence.
//
// Of trees, a segment's first state is its parent's last one, and the gradient of a segment's last state is
// the sum over those that continue it.
//
// Sequences go chunk by chunk (delta_rule_blocking.h), segments from their own beginning on. With b the sums
// of g within a chunk, decays enter only as e^(b_i - b_j), i >= j, which is at most 1. The u of a chunk's rows
// solve a triangle of equations, (I + L) U = R, sub-chunk by sub-chunk.
//
// Bits depend on nothing but a sequence's own data and where its segments part: not on the batch around it,
// not on the threads.
#pragma once

#include <cstdint>

#include "ops/attention/attention_kernels.h"
#include "ops/delta/delta_rule_blocking.h"

namespace plimsoll {

struct DeltaProblem {
  DeltaShape shape;
  float eps = 1e-6F;
};

template <class T>
struct DeltaForward {
  DeltaProblem problem;
  SequenceTable sequences;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const float* g = nullptr;
  const float* beta = nullptr;
  T* o = nullptr;
  void* scratch = nullptr;  // delta_forward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
};

template <class T>
struct DeltaBackward {
  DeltaProblem problem;
  SequenceTable sequences;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const float* g = nullptr;
  const float* beta = nullptr;
  const T* d_o = nullptr;
  T* d_q = nullptr;
  T* d_k = nullptr;
  T* d_v = nullptr;
  float* d_g = nullptr;
  float* d_beta = nullptr;
  void* scratch = nullptr;  // delta_backward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
};

// Generation: the next `live` tokens of one sequence, whose state is read and updated.
template <class T>
struct DeltaCached {
  DeltaProblem problem;
  int64_t live = 0;
  bool fresh = false;  // the state counts as zero: the sequence begins
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const float* g = nullptr;
  const float* beta = nullptr;
  T* o = nullptr;
  float* state = nullptr;   // [Hv, Dk, Dv]
  void* scratch = nullptr;  // delta_forward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
};

#define PLIMSOLL_DELTA_KERNELS(isa)                    \
  namespace isa {                                      \
  void delta_forward(const DeltaForward<float>&);      \
  void delta_forward(const DeltaForward<uint16_t>&);   \
  void delta_backward(const DeltaBackward<float>&);    \
  void delta_backward(const DeltaBackward<uint16_t>&); \
  void delta_cached(const DeltaCached<float>&);        \
  void delta_cached(const DeltaCached<uint16_t>&);     \
  }
PLIMSOLL_DELTA_KERNELS(avx2)
PLIMSOLL_DELTA_KERNELS(avx512)
PLIMSOLL_DELTA_KERNELS(avx512_bf16)
PLIMSOLL_DELTA_KERNELS(avx2_f16)
#undef PLIMSOLL_DELTA_KERNELS

}  // namespace plimsoll
