// Raw CPU kernels of variable-length attention with grouped query heads.
//
// Shapes: T tokens, N query heads, K key-value heads (N a multiple of K, G = N / K), D head size (a multiple
// of 8, at most 256). q, o are [T, N, D]; k, v are [T, K, D]; lse is f32 [T, N]; all dense and row-major,
// bf16 (uint16_t) or f32, with f32 arithmetic inside. A query sees the keys of its own sequence at
// 0 <= i - j < window (window 0: all before it and itself); without `causal` it sees all of them, and they
// may lie on another token axis.
//
// Sequences may be segments of trees: a segment continues where its parent ends, and sees its ancestors as
// though they stood before it; i and j count along that path.
//
// A bias is a table [buckets, N] of the type of q: to a logit of head n adds table[bucket(j - i)][n]
// (ops/attention/attention_bias.h). Dropout acts on the probabilities, behind their sum: kept ones are
// divided by 1 - p.
//
// Bits: the forward's depend on nothing but a sequence's own data, its ancestors' among it. The backward's
// depend on the number of threads too (how many partial sums d_q has), never on the other sequences of the
// batch.
#pragma once

#include <cstdint>

#include "ops/attention/attention_scratch.h"

namespace plimsoll {

// The places of sequences on the token axis: sequence s holds the rows [starts[s], starts[s + 1]). Rows of no
// sequence are padding; outputs are zero there. In trees, segments are in depth-first order, and each, which
// is never empty, is followed by all that descend from it.
struct SequenceTable {
  const int32_t* starts = nullptr;
  int64_t count = 0;
  const int32_t* parents = nullptr;  // the segment that each goes on from, -1: none; null: there are no trees
};

// Dropout of probabilities. Its random bits are keyed by what a probability is: the query's sample and
// position, its head, and the number of the key in its sequence. Splits of a batch, and the backward pass,
// see the same.
struct AttentionDropout {
  double probability = 0;              // of being dropped, 0 <= p < 1
  const int32_t* samples = nullptr;    // [T], index of the query's sample in the effective batch
  const int32_t* positions = nullptr;  // [T], within the sample
  uint64_t seed = 0, scope_hash = 0;
  uint32_t step = 0;
};

struct AttentionProblem {
  AttentionShape shape;
  int64_t tokens = 0;  // T; of the cached forward: the queries
  int64_t window =
      0;  // a query sees that many keys, itself included; 0 = no limit; else as many to each side
  float scale = 1.0F;      // logits are scale * q.k
  float softcap = 0.0F;    // above 0: softcap * tanh(logit / softcap) instead
  int64_t key_tokens = 0;  // where keys are on an axis of their own
  AttentionDropout dropout = {};
};

template <class T>
struct AttentionForward {
  AttentionProblem problem;
  SequenceTable sequences;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  T* o = nullptr;
  float* lse = nullptr;     // log of the softmax' denominator, scaled logits
  void* scratch = nullptr;  // attention_forward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
  SequenceTable keys = {};        // as many as `sequences`; no starts: they are the same
  const T* bias_table = nullptr;  // [shape.buckets, N]
};

template <class T>
struct AttentionBackward {
  AttentionProblem problem;
  SequenceTable sequences;
  const T* q = nullptr;
  const T* k = nullptr;
  const T* v = nullptr;
  const T* o = nullptr;
  const float* lse = nullptr;
  const T* d_o = nullptr;
  T* d_q = nullptr;
  T* d_k = nullptr;
  T* d_v = nullptr;
  void* scratch = nullptr;  // attention_backward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
  SequenceTable keys = {};
  const T* bias_table = nullptr;
  float* d_bias = nullptr;  // [shape.buckets, N], overwritten; null without shape.bias_trains
};

// Generation: the last problem.tokens of kv_length cached tokens are the queries (one token or a chunk of the
// prompt); their own keys and values are in the cache already. Without `causal` every query sees all of it:
// the keys of another text.
template <class T>
struct AttentionCached {
  AttentionProblem problem;
  const T* q = nullptr;
  const T* k_cache = nullptr;  // [capacity, K, D]
  const T* v_cache = nullptr;
  int64_t kv_length = 0;
  T* o = nullptr;
  void* scratch = nullptr;  // attention_forward_scratch_bytes(shape, threads), aligned to 64 bytes
  int threads = 1;
  const T* bias_table = nullptr;
};

#define PLIMSOLL_ATTENTION_KERNELS(isa)                        \
  namespace isa {                                              \
  void attention_forward(const AttentionForward<float>&);      \
  void attention_forward(const AttentionForward<uint16_t>&);   \
  void attention_backward(const AttentionBackward<float>&);    \
  void attention_backward(const AttentionBackward<uint16_t>&); \
  void attention_cached(const AttentionCached<float>&);        \
  void attention_cached(const AttentionCached<uint16_t>&);     \
  }
PLIMSOLL_ATTENTION_KERNELS(avx2)
PLIMSOLL_ATTENTION_KERNELS(avx512)
PLIMSOLL_ATTENTION_KERNELS(avx512_bf16)
PLIMSOLL_ATTENTION_KERNELS(avx2_f16)
#undef PLIMSOLL_ATTENTION_KERNELS

}  // namespace plimsoll
