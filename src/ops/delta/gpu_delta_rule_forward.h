// The gated delta rule on the GPU, chunk by chunk. delta_prepare: what makes unit rows. delta_chunks: decays,
// the inverse of a chunk's triangle of equations, and what its queries see of its own keys. delta_walk: the
// states that chunks start from and what is put into them, some columns of a head's on their own.
// A sequence that is alone goes through these stretch by stretch (delta_rule_gpu_scratch.h).
// delta_outputs: rows, from all of that. Include it only in delta_rule_gpu.cu.
#pragma once

#include "ops/delta/gpu_delta_rule.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// A warp a row of q and k.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_prepare(Delta<T> a) {
  const int64_t row = int64_t{blockIdx.x} * (kDeltaThreads / gpu::kWarpSize) + gpu::warp_of_block();
  if (row >= a.where.tokens * a.key_heads) return;
  gpu::require(a.where.starts[0] == 0,
               "the first sequence at the first token");  // stretches begin at whole chunks
  const auto factor_of = [&](const T* rows) {
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x) % gpu::kWarpSize; i < a.key_dim; i += gpu::kWarpSize) {
      const float x = gpu::to_float(rows[row * a.key_dim + i]);
      squares = gpu::fma(x, x, squares);
    }
    return 1.0F / sqrtf(gpu::warp_sum(squares) + a.eps);
  };
  const float of_q = factor_of(a.q) / sqrtf(static_cast<float>(a.key_dim));
  const float of_k = factor_of(a.k);
  if (threadIdx.x % gpu::kWarpSize != 0) return;
  a.made.q_factors[row] = of_q;
  a.made.k_factors[row] = of_k;
}

// Sums of g from the chunk's start on, in two parts, and the decays that are theirs.
template <class T>
PL_DEV void delta_gates(const Delta<T>& a, const GlaChunk& chunk, int head, float* highs, float* lows) {
  const int row = static_cast<int>(threadIdx.x);
  constexpr float kForgotten = -1e4F;  // whose e^g is 0; sums of such keep their digits
  if (row < kDeltaRows) {
    const float g = row < chunk.rows ? a.g[a.gate_at(chunk.token + row, head)] : 0.0F;
    highs[row] = g < kForgotten ? kForgotten : g;
  }
  __syncthreads();
  if (row == 0) {
    float high = 0, low = 0;
    for (int r = 0; r < kDeltaRows; ++r) {
      const float g = highs[r], sum = high + g, part = sum - high;
      low += (high - (sum - part)) + (g - part);
      high = sum;
      highs[r] = high;
      lows[r] = low;
    }
  }
  __syncthreads();
  if (row >= chunk.rows) return;
  const int64_t at = a.gate_at(chunk.token + row, head);
  a.made.high[at] = highs[row];
  a.made.low[at] = lows[row];
  a.made.from_start[at] = delta_decay(highs[row] + lows[row]);
  a.made.to_end[at] = delta_decay((highs[kDeltaRows - 1] - highs[row]) + (lows[kDeltaRows - 1] - lows[row]));
}

inline constexpr int kDeltaSquareRow = kDeltaRows + 1;

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_chunks(Delta<T> a) {
  PL_SHARED_TILES(space, DeltaSquare::kSpace);
  PL_SHARED(float, lower, kDeltaRows* kDeltaSquareRow);
  PL_SHARED(float, inverse, kDeltaRows* kDeltaSquareRow);
  PL_SHARED(float, highs, kDeltaRows);
  PL_SHARED(float, lows, kDeltaRows);
  const GlaChunk chunk = a.chunk(blockIdx.x);
  if (chunk.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  const DeltaChunkOf<T> of{a, chunk, head};
  delta_gates(a, chunk, head, highs, lows);
  const auto between = [&](int i, int j) {
    return i < j ? 0.0F : delta_decay((highs[i] - highs[j]) + (lows[i] - lows[j]));
  };
  const auto keys = [&](int d, int column) { return of.k(column, d); };
  DeltaSquare of_keys;
  of_keys.template add<true, true>(
      space, a.key_dim, [&](int row, int d) { return of.k(row, d); }, keys);
  of_keys.each([&](int i, int j, float sum) {
    lower[i * kDeltaSquareRow + j] = i > j ? of.gate(a.beta, i) * between(i, j) * sum : 0.0F;
  });
  DeltaSquare of_queries;
  of_queries.template add<true, true>(
      space, a.key_dim, [&](int row, int d) { return of.q(row, d); }, keys);
  of_queries.each([&](int i, int j, float sum) {
    if (of.has(i)) a.made.scores[a.row_at(chunk.token + i, head) + j] = between(i, j) * sum;
  });
  __syncthreads();
  // A thread a column of the inverse, row by row.
  if (thread < kDeltaRows)
    for (int i = 0; i < kDeltaRows; ++i) {
      float sum = i == thread ? 1.0F : 0.0F;
      for (int j = thread; j < i; ++j)
        sum = gpu::fma(-lower[i * kDeltaSquareRow + j], inverse[j * kDeltaSquareRow + thread], sum);
      inverse[i * kDeltaSquareRow + thread] = sum;
    }
  __syncthreads();
  for (int e = thread; e < chunk.rows * kDeltaRows; e += kDeltaThreads)
    a.made.inverses[a.row_at(chunk.token + e / kDeltaRows, head) + e % kDeltaRows] =
        inverse[e / kDeltaRows * kDeltaSquareRow + e % kDeltaRows];
}

// A walk's rows of its columns, in shared memory.
inline constexpr int kDeltaWalkRow = kDeltaWalkColumns + 4;

// A block's part of a walk over the chunks of a tree of segments, or of a sequence.
template <class T>
struct DeltaWalker {
  const Delta<T>& a;
  GlaSequences in = a.live();
  int head = static_cast<int>(blockIdx.x) % a.heads;
  int root = static_cast<int>(blockIdx.x) / a.heads;
  int column0 = static_cast<int>(blockIdx.y) * kDeltaWalkColumns;

  [[nodiscard]] PL_DEV bool walks() const { return root < in.count && parent_of(in, root) < 0; }
  [[nodiscard]] PL_DEV int end() const { return subtree_end(in, root); }
  // The first chunk of a segment beyond the stretch at hand.
  [[nodiscard]] PL_DEV int chunks_end(int segment) const {
    const int chunks = in.chunks(segment), end = a.first_chunk + a.stretch;
    return chunks < end ? chunks : end;
  }
  PL_DEV float& state(const DeltaStates& states, int64_t place, int key, int column) const {
    return a.state_at(states, place, head)[int64_t{key} * a.value_dim + column0 + column];
  }
  [[nodiscard]] PL_DEV bool has(int key, int column) const {
    return key < a.key_dim && column0 + column < a.value_dim;
  }
};

// The state behind chunk `index` of a segment: to where the next chunk, or those of the segments that
// continue it, start from.
template <class T>
PL_DEV void hand_on(const DeltaWalker<T>& w, int segment, int index, int key, int column, float value) {
  if (!w.has(key, column)) return;
  if (index + 1 < w.in.chunks(segment)) {
    w.state(w.a.made.states, GlaChunk(w.in, segment, index + 1).before, key, column) = value;
    return;
  }
  for (int s = segment + 1; s < w.in.count && w.in.parents[s] >= segment; ++s)
    if (w.in.parents[s] == segment)
      w.state(w.a.made.states, GlaChunk(w.in, s, 0).before, key, column) = value;
}

template <class T>
PL_DEV void walk_chunk(const DeltaWalker<T>& w, int segment, int index, float* space, float* rows) {
  const Delta<T>& a = w.a;
  const GlaChunk chunk(w.in, segment, index);
  const DeltaChunkOf<T> of{a, chunk, w.head};
  const auto own = [&](int d, int column) { return rows[d * kDeltaWalkRow + column]; };
  DeltaWalkTile found;
  if (!chunk.first)
    found.template add<true, false>(
        space, a.key_dim, [&](int row, int d) { return of.k(row, d); },
        [&](int d, int column) { return of.state(a.made.states, chunk.before, d, w.column0 + column); });
  found.each([&](int row, int column, float sum) {
    const float missed =
        gpu::fma(0.0F - of.gate(a.made.from_start, row), sum, of.value(a.v, row, w.column0 + column));
    rows[row * kDeltaWalkRow + column] = of.gate(a.beta, row) * missed;
  });
  DeltaWalkTile u;
  u.template add<true, false>(
      space, chunk.rows, [&](int row, int d) { return of.element(a.made.inverses, row, d); }, own);
  __syncthreads();  // rows are read
  u.each([&](int row, int column, float sum) {
    if (of.has(row) && w.column0 + column < a.value_dim)
      a.made.u[a.made_value_at(chunk.token + row, w.head) + w.column0 + column] = sum;
    rows[row * kDeltaWalkRow + column] = of.gate(a.made.to_end, row) * sum;
  });
  if (chunk.last) return;
  const float whole = of.whole();
  for (int key0 = 0; key0 < a.key_dim; key0 += kDeltaRows) {
    DeltaWalkTile added;
    added.template add<false, false>(
        space, chunk.rows, [&](int row, int d) { return of.k(d, key0 + row); }, own);
    added.each([&](int row, int column, float sum) {
      const int key = key0 + row;
      const float before =
          chunk.first ? 0.0F : of.state(a.made.states, chunk.before, key, w.column0 + column);
      hand_on(w, segment, index, key, column, gpu::fma(whole, before, sum));
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_walk(Delta<T> a) {
  PL_SHARED_TILES(space, DeltaWalkTile::kSpace);
  PL_SHARED(float, rows, kDeltaRows* kDeltaWalkRow);
  const DeltaWalker<T> w{a};
  if (!w.walks()) return;
  for (int segment = w.root, last = w.end(); segment < last; ++segment)
    for (int index = a.first_chunk, end = w.chunks_end(segment); index < end; ++index) {
      walk_chunk(w, segment, index, space, rows);
      __syncthreads();  // what it stored is there for all threads of the block
    }
}

// 64 columns of a chunk's rows and a head.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_outputs(Delta<T> a, T* o) {
  PL_SHARED_TILES(space, DeltaSquare::kSpace);
  const GlaChunk chunk = a.chunk(blockIdx.x);
  if (chunk.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y), column0 = static_cast<int>(blockIdx.z) * kDeltaColumns;
  const DeltaChunkOf<T> of{a, chunk, head};
  DeltaSquare tile;
  if (!chunk.first)
    tile.template add<true, false>(
        space, a.key_dim, [&](int row, int d) { return of.gate(a.made.from_start, row) * of.q(row, d); },
        [&](int d, int column) { return of.state(a.made.states, chunk.before, d, column0 + column); });
  tile.template add<true, false>(
      space, chunk.rows, [&](int row, int d) { return of.element(a.made.scores, row, d); },
      [&](int d, int column) { return of.made_value(a.made.u, d, column0 + column); });
  tile.each([&](int row, int column, float sum) {
    if (of.has(row) && column0 + column < a.value_dim)
      o[a.value_at(chunk.token + row, head) + column0 + column] = gpu::rounded<T>(sum);
  });
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
