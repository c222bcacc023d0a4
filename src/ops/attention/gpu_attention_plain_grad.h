// The backward of ops/attention/gpu_attention_plain.h, as that of the tiles in two kernels: one walks keys
// for 64 queries, the other queries for 64 keys. Include it only in attention_gpu.cu and
// attention_trees_gpu.cu.
#pragma once

#include "ops/attention/gpu_attention_plain.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

// delta [T, N] = sum of d_o * o over a head's values: a warp for each.
inline constexpr int kDeltaWarps = 4;  // of a block
template <class T>
__global__ void __launch_bounds__(kDeltaWarps * 32)
    attention_delta(const T* o, const T* d_o, float* delta, int64_t rows, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = int64_t{blockIdx.x} * kDeltaWarps + static_cast<int>(threadIdx.x) / 32;
  if (row >= rows) return;
  float sum = 0;
  for (int d = lane; d < dim; d += 32)
    sum = gpu::fma(gpu::to_float(o[row * dim + d]), gpu::to_float(d_o[row * dim + d]), sum);
  sum = gpu::warp_sum(sum);
  if (lane == 0) delta[row] = sum;
}

// Makes of a pair p, its probability, times what dropout made of it, and the gradient of its logit; `d_p` is the
// product of d_o and its value.
PL_DEV void soften_pair(float& p, float& d_p, float lse, float delta, float kept, float cap) {
  const float slope = capped_slope(p, cap);
  p = weight_of(p, lse);
  d_p = p * (kept * d_p - delta) * slope;
  p *= kept;
}
// The values of a query that the forward and attention_delta left.
struct PlainStatistics {
  float lse = 0, delta = 0;
};
// `head`: of its group, beyond the site's.
template <class T>
PL_DEV PlainStatistics statistics_of(const GpuAttentionGrad<T>& g, const GpuAttentionSite<T>& at, int head,
                                     int query) {
  if (query >= at.length) return {};
  const int64_t own = at.row_at(query, g.a.heads) + head;
  return {g.lse[own], g.delta[own]};
}

// The gradient of a bias: of the block's scores by bucket, a thread for each bucket.
template <class T>
struct PlainBiasSums {
  const GpuAttentionGrad<T>& g;
  bool wanted;
  int first = 0, end = 0;  // distances of the thread's bucket
  float sum = 0;

  PL_DEV PlainBiasSums(const GpuAttentionGrad<T>& all, int part)
      : g(all), wanted(all.bias_sums != nullptr && part == 0) {
    const GpuBias<T>& bias = g.a.bias;
    const auto bucket = static_cast<int>(threadIdx.x);
    if (!wanted || bucket >= bias.all_buckets()) return;
    constexpr int kFar = 1 << 30;
    const bool behind = bucket < bias.buckets;
    const int side = behind ? bucket : bucket - bias.buckets;
    const int away = bias.borders[side], past = side + 1 < bias.buckets ? bias.borders[side + 1] : kFar;
    first = behind ? 1 - past : away > 0 ? away : 1;
    end = behind ? 1 - away : past;
  }
  // Adds gradients of logits, which all threads have put; `distance0`: from the first query to the first key.
  PL_DEV void add(const float* scores, int distance0, float* diagonals) {
    if (!wanted) return;
    const auto i = static_cast<int>(threadIdx.x);
    diagonals[i] = of_diagonal(scores, i - (kPlainTile - 1));
    __syncthreads();
    const int here = distance0 - (kPlainTile - 1);
    const int begin = first > here ? first - here : 0,
              past = end - here < kDiagonals ? end - here : kDiagonals;
    for (int k = begin; k < past; ++k) sum += diagonals[k];
  }
  PL_DEV void put(const GpuAttentionSite<T>& at, int tile) const {
    if (!wanted || static_cast<int>(threadIdx.x) >= g.a.bias.all_buckets()) return;
    g.bias_sums_of(at.sequence, at.head, tile)[threadIdx.x] = sum;
  }

 private:
  // `offset`: column - row.
  static PL_DEV float of_diagonal(const float* scores, int offset) {
    float sum = 0;
    for (int row = offset < 0 ? -offset : 0; row < kPlainTile && row + offset < kPlainTile; ++row) {
      const int column = row + offset;
      sum += scores[score_place(row, column / 4) + column % 4];
    }
    return sum;
  }
};

// Panels for 64 queries: of keys, of their values with d_o, and of keys.
template <class T, int kColumns, class Site>
struct QueryGradPanels {
  const GpuAttentionGrad<T>& g;
  const Site& at;
  const PlainPlan<kColumns>& plan;
  int q0, key, end, which = 0;

  PL_DEV void bring(PanelPairs<T>& pairs) {
    if (key >= end) return;
    const int depth = plan.depth;
    const auto keys = key_rows(g.a, at, g.a.k, key), values = key_rows(g.a, at, g.a.v, key);
    PanelPair<std::remove_cv_t<decltype(keys)>> pair;
    if (which < depth)
      pair = plan.of_depth(query_rows(g.a, at, g.a.q, q0), keys, which);
    else if (which < 2 * depth)
      pair = plan.of_depth(query_rows(g.a, at, g.d_o, q0), values, which - depth);
    else
      pair = plan.of_block(keys, which - 2 * depth);
    pairs.bring(pair);
    if (++which < 2 * depth + plan.blocks()) return;
    which = 0;
    key += kPlainTile;
  }
};

// Products of queries and keys, and of d_o and values, to probabilities and gradients of logits.
template <class T, class Site>
PL_DEV void soften_queries(const GpuAttention<T>& a, const Site& at, int q0, int k0,
                           const PlainStatistics (&rows)[kPlainRows], PlainPart& p, PlainPart& d_p) {
  if (!keys_of(a, at, q0, q0 + kPlainTile - 1).hold_all(k0, kPlainTile))
    hide_scores(p, k0, [&](int row) { return keys_of(a, at, q0 + row, q0 + row); });
  const DrawnKept kept = draw_rows_of_queries(a, at, q0, k0);
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j)
      soften_pair(p[i][j], d_p[i][j], rows[i].lse, rows[i].delta, kept.of(i, j), a.softcap);
  }
}

// Rows of 64 of a block, all times `factor`.
template <int kColumns, class T>
PL_DEV void put_gradient(T* to, int64_t stride, int rows, const PlainPlan<kColumns>& plan,
                         const PlainPart (&sums)[kColumns / 64], float factor) {
  float factors[kPlainRows];
  PL_UNROLL
  for (float& each : factors) each = factor;
  PL_UNROLL
  for (int block = 0; block < kColumns / 64; ++block)
    put_sums(to + plan.first() + block * 64, stride, rows, plan.left(block), sums[block], factors);
}

// d_q of 64 queries, over the keys they see, and what the bias of their logits gets.
template <class T, int kColumns, class Site = GpuAttentionSite<T>>
__global__ void __launch_bounds__(kPlainThreads, kColumns == 64 ? 3 : 2)
    attention_grad_queries_plain(GpuAttentionGrad<T> g) {
  const GpuAttention<T>& a = g.a;
  PL_LAUNCHED_SHARED(gpu::Pack<float>, shared, kPlainSharedBytes / 16);
  const PlainSpace space(shared);
  const PlainPlan<kColumns> plan(a.head_dim);
  const GpuTile tile = tile_of_block<kPlainTile>(a.queries.starts, a.live_sequences(), shared);
  const Site at(a, tile.sequence, plan.head());
  // The last queries see the most keys: they begin first.
  const int q0 = tile.behind * kPlainTile;
  if (q0 >= at.length) return;
  const int end = a.end_of_keys(at.number(q0 + kPlainTile - 1), at.key_length);
  int k0 = a.first_key(at.number(q0)) / kPlainTile * kPlainTile;
  using Panels = QueryGradPanels<T, kColumns, Site>;
  PlainProducts<T, kColumns, Panels> products(plan, space, Panels{g, at, plan, q0, k0, end});
  PlainStatistics rows[kPlainRows];
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) rows[i] = statistics_of(g, at, 0, q0 + plain_row(i));
  PlainBiasSums<T> bias_sums(g, plan.part);
  PlainPart d_q[kColumns / 64] = {};
  for (; k0 < end; k0 += kPlainTile) {
    PlainPart p = {}, d_p = {};
    fill_diagonals(a, at.head, k0 - q0, space.biases());
    products.multiply(p);
    put_scores(space.scores(), p);  // out of the way: registers are short
    products.multiply(d_p);
    get_scores(p, space.scores());
    finish_logits<TileRowsAre::queries>(a, space.biases(), p);
    soften_queries(a, at, q0, k0, rows, p, d_p);
    put_scores(space.scores(), d_p);
    products.add(d_q, [&] { bias_sums.add(space.scores(), k0 - q0, space.bias_gradients()); });
  }
  bias_sums.put(at, tile.behind);
  put_gradient<kColumns>(g.d_q + at.q_at(q0, plan.dim), at.q_stride, at.length - q0, plan, d_q, a.scale);
}

// Panels for 64 keys: of queries, of d_o with the keys' values, of d_o, and of queries.
template <class T, int kColumns>
struct KeyGradPanels {
  const GpuAttentionGrad<T>& g;
  const GpuAttentionSite<T>& at;
  const PlainPlan<kColumns>& plan;
  int k0, begin, end;
  QueryStep step;
  int which = 0;

  PL_DEV void bring(PanelPairs<T>& pairs) {
    if (step.head >= g.a.heads / g.a.kv_heads) return;
    const int depth = plan.depth, block = which - 2 * depth;
    const int head = step.head * plan.dim;
    const RowsOf<T> queries = query_rows(g.a, at, g.a.q + head, step.query);
    const RowsOf<T> d_o = query_rows(g.a, at, g.d_o + head, step.query);
    PanelPair<RowsOf<T>> pair;
    if (which < depth)
      pair = plan.of_depth(key_rows(g.a, at, g.a.k, k0), queries, which);
    else if (block < 0)
      pair = plan.of_depth(key_rows(g.a, at, g.a.v, k0), d_o, which - depth);
    else if (block < plan.blocks())
      pair = plan.of_block(d_o, block);
    else
      pair = plan.of_block(queries, block - plan.blocks());
    pairs.bring(pair);
    if (++which < 2 * (depth + plan.blocks())) return;
    which = 0;
    step.go_on(begin, end, kPlainTile);
  }
};

// As soften_queries, where rows are keys; `step` says which queries of which head.
template <class T, class Site>
PL_DEV void soften_keys(const GpuAttentionGrad<T>& g, const Site& at, QueryStep step, int k0, PlainPart& p,
                        PlainPart& d_p) {
  const GpuAttention<T>& a = g.a;
  const int q0 = step.query;
  if (!queries_of(a, at, k0, k0 + kPlainTile - 1).hold_all(q0, kPlainTile))
    hide_scores(p, q0, [&](int row) { return queries_that_see(a, at, k0 + row); });
  const DrawnKept kept = draw_rows_of_keys(a, at, at.head + step.head, q0, k0);
  PL_UNROLL
  for (int j = 0; j < kPlainKeys; ++j) {
    const PlainStatistics of = statistics_of(g, at, step.head, q0 + plain_column(j));
    PL_UNROLL
    for (int i = 0; i < kPlainRows; ++i)
      soften_pair(p[i][j], d_p[i][j], of.lse, of.delta, kept.of(i, j), a.softcap);
  }
}

// d_k and d_v of 64 keys, over all queries of all heads of the group.
template <class T, int kColumns, class Site = GpuAttentionSite<T>>
__global__ void __launch_bounds__(kPlainThreads, 2) attention_grad_keys_plain(GpuAttentionGrad<T> g) {
  const GpuAttention<T>& a = g.a;
  PL_LAUNCHED_SHARED(gpu::Pack<float>, shared, kPlainSharedBytes / 16);
  const PlainSpace space(shared);
  const PlainPlan<kColumns> plan(a.head_dim);
  const GpuTile tile = tile_of_block<kPlainTile>(a.keys.starts, a.live_sequences(), shared);
  const int k0 = tile.index * kPlainTile, group = a.heads / a.kv_heads;
  const Site at(a, tile.sequence, plan.head() * group);
  if (k0 >= at.key_length) return;
  const int begin = a.first_query(k0) / kPlainTile * kPlainTile;
  const int end = at.end_of_queries(a, k0 + kPlainTile - 1);
  QueryStep step{begin < end ? 0 : group, begin};
  using Panels = KeyGradPanels<T, kColumns>;
  PlainProducts<T, kColumns, Panels> products(plan, space, Panels{g, at, plan, k0, begin, end, step});
  PlainPart d_k[kColumns / 64] = {}, d_v[kColumns / 64] = {};
  for (; step.head < group; step.go_on(begin, end, kPlainTile)) {
    PlainPart p = {}, d_p = {};  // [keys, queries]
    fill_diagonals(a, at.head + step.head, k0 - step.query, space.biases());
    products.multiply(p);
    put_scores(space.scores(), p);  // out of the way: registers are short
    products.multiply(d_p);
    get_scores(p, space.scores());
    finish_logits<TileRowsAre::keys>(a, space.biases(), p);
    soften_keys(g, at, step, k0, p, d_p);
    put_scores(space.scores(), p);
    products.add(d_v);
    __syncwarp();  // the warp's rows of scores are free
    put_scores(space.scores(), d_p);
    products.add(d_k);
  }
  const int64_t own = at.kv_at(k0, plan.dim);
  put_gradient<kColumns>(g.d_v + own, at.kv_stride, at.key_length - k0, plan, d_v, 1.0F);
  put_gradient<kColumns>(g.d_k + own, at.kv_stride, at.key_length - k0, plan, d_k, a.scale);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
