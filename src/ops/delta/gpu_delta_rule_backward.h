// Gradients of the gated delta rule on the GPU, chunk by chunk. delta_grad_walk: gradients of the states
// behind chunks, and of the right sides of their equations, some columns of a head's on their own.
// delta_grad_scores: what a chunk's rows give one another. delta_grad_rows: gradients of unit rows, 64 keys
// of them. delta_finish_rows, delta_finish_gates: those of q and k, of g and beta. Include it only in
// delta_rule_gpu.cu.
#pragma once

#include "ops/delta/gpu_delta_rule_forward.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// The gradient of the state before chunk `index` of a segment: to that of the one behind the chunk that it
// follows. Of the segments that continue one, the last is the first to come.
template <class T>
PL_DEV void hand_back(const DeltaWalker<T>& w, const DeltaStates& d_states, int segment, int index, int key,
                      int column, float value) {
  if (!w.has(key, column)) return;
  if (index > 0) {
    w.state(d_states, GlaChunk(w.in, segment, index - 1).behind, key, column) = value;
    return;
  }
  const int parent = w.in.parents[segment];
  float& sum = w.state(d_states, GlaChunk(w.in, parent, w.in.chunks(parent) - 1).behind, key, column);
  sum = is_last_child(w.in, segment) ? value : sum + value;
}

template <class T>
PL_DEV void walk_chunk_back(const DeltaWalker<T>& w, const DeltaGrad<T>& g, int segment, int index,
                            float* space, float* rows) {
  const Delta<T>& a = w.a;
  const GlaChunk chunk(w.in, segment, index);
  const DeltaChunkOf<T> of{a, chunk, w.head};
  const auto own = [&](int d, int column) { return rows[d * kDeltaWalkRow + column]; };
  const auto d_o = [&](int d, int column) { return of.value(g.d_o, d, w.column0 + column); };
  DeltaWalkTile d_u;
  d_u.template add<false, false>(
      space, chunk.rows, [&](int row, int d) { return of.element(a.made.scores, d, row); }, d_o);
  if (!chunk.last)
    d_u.template add<true, false>(
        space, a.key_dim, [&](int row, int d) { return of.gate(a.made.to_end, row) * of.k(row, d); },
        [&](int d, int column) { return of.state(g.d_states, chunk.behind, d, w.column0 + column); });
  d_u.each([&](int row, int column, float sum) { rows[row * kDeltaWalkRow + column] = sum; });
  DeltaWalkTile d_r;
  d_r.template add<false, false>(
      space, chunk.rows, [&](int row, int d) { return of.element(a.made.inverses, d, row); }, own);
  __syncthreads();  // rows are read
  d_r.each([&](int row, int column, float sum) {
    const float d_v = of.gate(a.beta, row) * sum;
    if (of.has(row) && w.column0 + column < a.value_dim) {
      const int64_t token = chunk.token + row, own_column = w.column0 + column;
      g.d_r[a.made_value_at(token, w.head) + own_column] = sum;
      g.d_v[a.value_at(token, w.head) + own_column] = gpu::rounded<T>(d_v);
    }
    rows[row * kDeltaWalkRow + column] = 0.0F - of.gate(a.made.from_start, row) * d_v;
  });
  if (chunk.first) return;
  const float whole = of.whole();
  for (int key0 = 0; key0 < a.key_dim; key0 += kDeltaRows) {
    DeltaWalkTile added;
    added.template add<false, false>(
        space, chunk.rows,
        [&](int row, int d) { return of.gate(a.made.from_start, d) * of.q(d, key0 + row); }, d_o);
    added.template add<false, false>(
        space, chunk.rows, [&](int row, int d) { return of.k(d, key0 + row); }, own);
    added.each([&](int row, int column, float sum) {
      const int key = key0 + row;
      const float behind = chunk.last ? 0.0F : of.state(g.d_states, chunk.behind, key, w.column0 + column);
      hand_back(w, g.d_states, segment, index, key, column, gpu::fma(whole, behind, sum));
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_grad_walk(DeltaGrad<T> g) {
  PL_SHARED_TILES(space, DeltaWalkTile::kSpace);
  PL_SHARED(float, rows, kDeltaRows* kDeltaWalkRow);
  const DeltaWalker<T> w{g.a};
  if (!w.walks()) return;
  for (int segment = w.end() - 1; segment >= w.root; --segment)
    for (int index = w.chunks_end(segment) - 1; index >= g.a.first_chunk; --index) {
      walk_chunk_back(w, g, segment, index, space, rows);
      __syncthreads();  // what it stored is there for all threads of the block
    }
}

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_grad_scores(DeltaGrad<T> g) {
  PL_SHARED_TILES(space, DeltaSquare::kSpace);
  PL_SHARED(float, of_queries, kDeltaRows* kDeltaSquareRow);
  PL_SHARED(float, of_keys, kDeltaRows* kDeltaSquareRow);
  PL_SHARED(float, dots, kDeltaRows);
  const Delta<T>& a = g.a;
  const GlaChunk chunk = a.chunk(blockIdx.x);
  if (chunk.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const DeltaChunkOf<T> of{a, chunk, head};
  const auto u = [&](int d, int column) { return of.made_value(a.made.u, column, d); };
  const auto put = [&](float* to, int i, int j, float x) { to[a.row_at(chunk.token + i, head) + j] = x; };

  DeltaSquare d_queries;
  d_queries.template add<true, true>(
      space, a.value_dim, [&](int row, int d) { return of.value(g.d_o, row, d); }, u);
  d_queries.each([&](int i, int j, float sum) {
    const bool seen = of.has(i) && j <= i;
    of_queries[i * kDeltaSquareRow + j] = seen ? sum * of.element(a.made.scores, i, j) : 0.0F;
    if (of.has(i)) put(g.d_queries, i, j, seen ? of.between(i, j) * sum : 0.0F);
  });
  DeltaSquare keys, d_keys;
  keys.template add<true, true>(
      space, a.key_dim, [&](int row, int d) { return of.k(row, d); },
      [&](int d, int column) { return of.k(column, d); });
  d_keys.template add<true, true>(
      space, a.value_dim, [&](int row, int d) { return of.made_value(g.d_r, row, d); }, u);
  keys.each([&](int i, int j, float sum) { of_keys[i * kDeltaSquareRow + j] = sum; });  // own places
  d_keys.each([&](int i, int j, float sum) {
    const float decayed = of.has(i) && j < i ? of.between(i, j) * sum : 0.0F;
    if (of.has(i)) put(g.d_keys, i, j, 0.0F - of.gate(a.beta, i) * decayed);
    of_keys[i * kDeltaSquareRow + j] *= decayed;
  });
  for (int row = gpu::warp_of_block(); row < chunk.rows; row += kDeltaThreads / gpu::kWarpSize) {
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x) % gpu::kWarpSize; c < a.value_dim; c += gpu::kWarpSize)
      sum = gpu::fma(of.made_value(g.d_r, row, c), of.value(a.v, row, c), sum);
    sum = gpu::warp_sum(sum);
    if (threadIdx.x % gpu::kWarpSize == 0) dots[row] = sum;
  }
  __syncthreads();
  // Pairs of a row i or one behind it, and one before it: sums along rows first, then down columns.
  const int i = static_cast<int>(threadIdx.x);
  float of_beta = 0, sum = 0;
  for (int j = 0; j <= i && i < chunk.rows; ++j) {
    const float of_pair = gpu::fma(0.0F - of.gate(a.beta, i), of_keys[i * kDeltaSquareRow + j],
                                   of_queries[i * kDeltaSquareRow + j]);
    of_beta += of_keys[i * kDeltaSquareRow + j];
    of_queries[i * kDeltaSquareRow + j] = sum;
    sum += of_pair;
  }
  __syncthreads();
  if (i >= chunk.rows) return;
  float across = 0;
  for (int r = i; r < chunk.rows; ++r) across += of_queries[r * kDeltaSquareRow + i];
  const int64_t at = a.gate_at(chunk.token + i, head);
  g.d_sums[at] = across;
  g.d_beta[at] = dots[i] - of_beta;
}

// Sums over the eight threads that have a row.
PL_DEV float delta_row_sum(float x) {
  PL_UNROLL
  for (int d = 4; d > 0; d /= 2) x += __shfl_xor_sync(gpu::kAll, x, d);
  return x;
}

// The parts of 64 keys' gradients in unit rows that a head gives: by its states, and by the chunk's rows.
template <class T>
struct DeltaRowGrad {
  const DeltaGrad<T>& g;
  const GlaChunk& chunk;
  int head, key0;
  float* space;
  DeltaChunkOf<T> of{g.a, chunk, head};

  // rows(row, column), a value's of each token, times a state, transposed.
  template <class Rows>
  PL_DEV void times_state(DeltaSquare& tile, const Rows& rows, const DeltaStates& states,
                          int64_t place) const {
    tile.template add<true, true>(space, g.a.value_dim, rows, [&](int d, int column) {
      return of.state(states, place, key0 + column, d);
    });
  }
  // With factors of its rows, `tile` times weights of rows is added to `sums`; a row's product with that of
  // `unit`, over the keys here, goes to `parts`.
  template <class Factor, class Weight, class Unit>
  PL_DEV void take(const DeltaSquare& tile, const Factor& factor, const Weight& weight, const Unit& unit,
                   DeltaSquare& sums, float (&parts)[4]) const {
    PL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = DeltaSquare::row(i);
      const float f = factor(row), w = weight(row);
      float sum = 0;
      PL_UNROLL
      for (int j = 0; j < DeltaSquare::kOwn; ++j) {
        const float x = f * tile.sums[i][j];
        sum = gpu::fma(x, unit(row, key0 + DeltaSquare::column(j)), sum);
        sums.sums[i][j] = gpu::fma(w, x, sums.sums[i][j]);
      }
      parts[i] = delta_row_sum(sum);
    }
  }
  PL_DEV void from_states(DeltaSquare& d_q, DeltaSquare& d_k) const {
    const Delta<T>& a = g.a;
    const auto q = [&](int row, int key) { return of.q(row, key); };
    const auto k = [&](int row, int key) { return of.k(row, key); };
    const auto u = [&](int row, int d) { return of.made_value(a.made.u, row, d); };
    const auto d_o = [&](int row, int d) { return of.value(g.d_o, row, d); };
    const auto d_r = [&](int row, int d) { return of.made_value(g.d_r, row, d); };
    const auto one = [](int) { return 1.0F; };
    float of_q[4] = {}, of_end[4] = {}, of_k[4] = {};
    if (!chunk.last) {
      DeltaSquare tile;
      times_state(tile, u, g.d_states, chunk.behind);
      take(
          tile, [&](int row) { return of.gate(a.made.to_end, row); }, one, k, d_k, of_end);
    }
    if (!chunk.first) {
      DeltaSquare tile;
      times_state(tile, d_o, a.made.states, chunk.before);
      take(
          tile, [&](int row) { return of.gate(a.made.from_start, row); }, one, q, d_q, of_q);
      DeltaSquare second;
      times_state(second, d_r, a.made.states, chunk.before);
      take(
          second, [&](int row) { return 0.0F - of.gate(a.made.from_start, row); },
          [&](int row) { return of.gate(a.beta, row); }, k, d_k, of_k);
    }
    if (threadIdx.x % 8 != 0) return;
    PL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = DeltaSquare::row(i);
      if (!of.has(row)) continue;
      const int64_t at = a.gate_at(chunk.token + row, head);
      float* const to = g.row_parts + (int64_t{blockIdx.z} * a.where.tokens * a.heads + at) * 3;
      to[0] = of_q[i];
      to[1] = of_end[i];
      to[2] = of_k[i];
    }
  }
  PL_DEV void from_rows(DeltaSquare& d_q, DeltaSquare& d_k) const {
    const auto q = [&](int d, int column) { return of.q(d, key0 + column); };
    const auto k = [&](int d, int column) { return of.k(d, key0 + column); };
    const auto plain = [&](const float* matrix) {
      return [this, matrix](int row, int d) { return of.element(matrix, row, d); };
    };
    const auto transposed = [&](const float* matrix) {
      return [this, matrix](int row, int d) { return of.element(matrix, d, row); };
    };
    d_q.template add<true, false>(space, chunk.rows, plain(g.d_queries), k);
    d_k.template add<false, false>(space, chunk.rows, transposed(g.d_queries), q);
    d_k.template add<true, false>(space, chunk.rows, plain(g.d_keys), k);
    d_k.template add<false, false>(space, chunk.rows, transposed(g.d_keys), k);
  }
  // The product of the state before the chunk and of the gradient of that behind it, over the keys here.
  PL_DEV void product_of_states(float* parts) const {
    const Delta<T>& a = g.a;
    float sum = 0;
    if (!chunk.first && !chunk.last)
      for (int e = static_cast<int>(threadIdx.x); e < kDeltaRows * a.value_dim; e += kDeltaThreads) {
        const int key = key0 + e / a.value_dim, column = e % a.value_dim;
        sum = gpu::fma(of.state(a.made.states, chunk.before, key, column),
                       of.state(g.d_states, chunk.behind, key, column), sum);
      }
    sum = gpu::block_sum<kDeltaThreads>(sum, parts);
    if (threadIdx.x == 0) g.state_parts[(int64_t{blockIdx.z} * a.slots + chunk.slot) * a.heads + head] = sum;
    __syncthreads();  // parts are free again
  }
};

template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_grad_rows(DeltaGrad<T> g) {
  PL_SHARED_TILES(space, DeltaSquare::kSpace);
  PL_SHARED(float, parts, kDeltaThreads / gpu::kWarpSize);
  const Delta<T>& a = g.a;
  const GlaChunk chunk = a.chunk(blockIdx.x);
  if (chunk.rows == 0) return;
  const int key_head = static_cast<int>(blockIdx.y), key0 = static_cast<int>(blockIdx.z) * kDeltaColumns;
  const int group = a.heads / a.key_heads;
  DeltaSquare d_q, d_k;
  for (int head = key_head * group; head < (key_head + 1) * group; ++head) {
    const DeltaRowGrad<T> of{g, chunk, head, key0, space};
    of.product_of_states(parts);
    of.from_states(d_q, d_k);
    of.from_rows(d_q, d_k);
  }
  const auto put = [&](const DeltaSquare& tile, float* to) {
    tile.each([&](int row, int column, float sum) {
      if (row < chunk.rows && key0 + column < a.key_dim)
        to[a.made_key_at(chunk.token + row, key_head) + key0 + column] = sum;
    });
  };
  put(d_q, g.d_q_rows);
  put(d_k, g.d_k_rows);
}

// Gradients of q and k from those of the unit rows that were made of them: a warp a row of both.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) delta_finish_rows(DeltaGrad<T> g) {
  const Delta<T>& a = g.a;
  const int64_t place = int64_t{blockIdx.x} * (kDeltaThreads / gpu::kWarpSize) + gpu::warp_of_block();
  const int64_t row = a.first_token() * a.key_heads + place;
  if (place >= int64_t{a.stretch} * kDeltaRows * a.key_heads || row >= a.where.tokens * a.key_heads) return;
  const GlaSequences in = a.live();
  const int64_t token = row / a.key_heads;
  if (in.count == 0 || token < in.starts[0] || token >= in.starts[in.count]) return;
  const float width = sqrtf(static_cast<float>(a.key_dim));
  const auto finish = [&](const T* x, float factor, float to_unit, const float* d, T* to) {
    const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpSize;
    const int64_t at = row * a.key_dim, made = place * a.key_dim;
    float along = 0;
    for (int i = lane; i < a.key_dim; i += gpu::kWarpSize)
      along = gpu::fma(gpu::to_float(x[at + i]) * to_unit, d[made + i], along);
    along = gpu::warp_sum(along);
    for (int i = lane; i < a.key_dim; i += gpu::kWarpSize)
      to[at + i] =
          gpu::rounded<T>(factor * gpu::fma(0.0F - along, gpu::to_float(x[at + i]) * to_unit, d[made + i]));
  };
  finish(a.q, a.made.q_factors[row], a.made.q_factors[row] * width, g.d_q_rows, g.d_q);
  finish(a.k, a.made.k_factors[row], a.made.k_factors[row], g.d_k_rows, g.d_k);
}

// A block a chunk of a head.
inline constexpr int kDeltaGateThreads = kDeltaRows;
template <class T>
__global__ void __launch_bounds__(kDeltaGateThreads) delta_finish_gates(DeltaGrad<T> g, int tiles) {
  PL_SHARED(float, sums, kDeltaRows);
  PL_SHARED(float, ends, kDeltaRows);
  const Delta<T>& a = g.a;
  const GlaChunk chunk = a.chunk(blockIdx.x);
  if (chunk.rows == 0) return;
  const int head = static_cast<int>(blockIdx.y), row = static_cast<int>(threadIdx.x);
  const DeltaChunkOf<T> of{a, chunk, head};
  const int64_t at = a.gate_at(chunk.token + row, head);
  if (of.has(row)) {
    float of_q = 0, of_end = 0, of_k = 0;
    for (int tile = 0; tile < tiles; ++tile) {
      const float* const from = g.row_parts + (tile * a.where.tokens * a.heads + at) * 3;
      of_q += from[0];
      of_end += from[1];
      of_k += from[2];
    }
    sums[row] = gpu::fma(a.beta[at], of_k, of_q);
    ends[row] = of_end;
    g.d_beta_out[at] = g.d_beta[at] + of_k;
  }
  __syncthreads();
  if (!of.has(row)) return;
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile)
    sum += g.state_parts[(int64_t{tile} * a.slots + chunk.slot) * a.heads + head];
  sum *= of.whole();
  // A row's g is met by rows before it on their way to the state behind, and by the state before on its way
  // to rows from this one on.
  for (int r = 0; r < row; ++r) sum += ends[r];
  for (int r = row; r < chunk.rows; ++r) sum += sums[r];
  g.d_g[at] = g.d_sums[at] + sum;
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
