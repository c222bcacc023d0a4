// Attention by plain arithmetic in f32, flash style, for f32 and for what tensor cores
// (ops/attention/gpu_attention_tiles.h) do not do. The bits of the emulated card are those of any other. A
// block has 64 rows of one head and, at a time, 64 of the other side; products are of panels
// (ops/attention/gpu_attention_panels.h). A block sums at most 128 of a head's values: heads that have more
// have a block for each part, which compute the same scores. The backward is in
// ops/attention/gpu_attention_plain_grad.h. Include it only in attention_gpu.cu and attention_trees_gpu.cu.
//
// kColumns: values of a head that a block sums, 64 or 128; those beyond head_dim are zeros.
#pragma once

#include "gpu/math.h"
#include "ops/attention/attention_shape.h"
#include "ops/attention/gpu_attention_extras.h"
#include "ops/attention/gpu_attention_panels.h"
#include "ops/pointwise/gpu_tanh.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kAttentionMostDims = 256;  // of a head
inline constexpr float kPlainUnseen = -1e30F;   // a logit
static_assert(kPlainTile == kGpuAttentionTile);
inline constexpr int kDiagonals = 2 * kPlainTile;  // of scores, one too many

// A block's memory: panels, scores, and what scores have by their distance: a bias, and the bias's gradient.
inline constexpr int kPlainSharedBytes =
    (PanelPairs<float>::kFloats + kScores + 2 * kDiagonals) * int{sizeof(float)};
struct PlainSpace {
  float* panels;
  PL_DEV explicit PlainSpace(gpu::Pack<float>* shared) : panels(reinterpret_cast<float*>(shared)) {}
  [[nodiscard]] PL_DEV float* scores() const { return panels + PanelPairs<float>::kFloats; }
  [[nodiscard]] PL_DEV float* biases() const { return scores() + kScores; }
  [[nodiscard]] PL_DEV float* bias_gradients() const { return biases() + kDiagonals; }
};

// Parts of a head's values, a block each.
template <int kColumns>
PL_BOTH int plain_parts(int head_dim) {
  return (head_dim + kColumns - 1) / kColumns;
}
// A block's work on a head: its part of the values, and the panels that it reads for that.
template <int kColumns>
struct PlainPlan {
  int part, dim, depth;  // `depth`: pairs of panels of a product of rows

  PL_DEV explicit PlainPlan(int head_dim)
      : part(static_cast<int>(blockIdx.y) % plain_parts<kColumns>(head_dim)),
        dim(head_dim),
        depth((head_dim + kPanelValues - 1) / kPanelValues) {}
  [[nodiscard]] PL_DEV int head() const { return static_cast<int>(blockIdx.y) / plain_parts<kColumns>(dim); }
  [[nodiscard]] PL_DEV int first() const { return part * kColumns; }  // value
  // Values of the part from its block of 64 `block` on, and how many blocks there are.
  [[nodiscard]] PL_DEV int left(int block) const { return dim - first() - block * 64; }
  [[nodiscard]] PL_DEV int blocks() const { return kColumns == 64 || left(1) <= 0 ? 1 : 2; }

  // A pair of panels: of rows of two matrices, whose first values are at `from`, for a product over their
  // values; `which`: of its depth ...
  template <class Rows>
  [[nodiscard]] PL_DEV PanelPair<Rows> of_depth(const Rows& left, const Rows& right, int which) const {
    const int value = which * kPanelValues;
    return {{left, value, dim}, {right, value, dim}};
  }
  // ... or of one matrix, of a block of the part's values.
  template <class Rows>
  [[nodiscard]] PL_DEV PanelPair<Rows> of_block(const Rows& rows, int block) const {
    const int value = first() + block * 64;
    return {{rows, value, dim}, {rows, value + kPanelValues, dim}};
  }
};

// A block's products. Their panels come in pairs, in the order that `Panels` brings them: a pair at a call,
// none when there is nothing left.
template <class T, int kColumns, class Panels>
struct PlainProducts {
  const PlainPlan<kColumns>& plan;
  const PlainSpace& space;
  Panels panels;
  PanelPairs<T> pairs;

  PL_DEV PlainProducts(const PlainPlan<kColumns>& all, const PlainSpace& memory, const Panels& in_order)
      : plan(all), space(memory), panels(in_order), pairs(memory.panels) {
    panels.bring(pairs);
  }
  PL_DEV const float* take() {
    const float* const pair = pairs.take();
    panels.bring(pairs);
    return pair;
  }
  // scores += rows times rows.
  PL_DEV void multiply(PlainPart& scores) {
    for (int i = 0; i < plan.depth; ++i) {
      const float* const pair = take();
      multiply_panels(scores, pair, pair + kPanel);
    }
  }
  // sums += the scores that were put times rows; `meanwhile` is called when all threads have put them.
  template <class Meanwhile>
  PL_DEV void add(PlainPart (&sums)[kColumns / 64], Meanwhile meanwhile) {
    PL_UNROLL
    for (int block = 0; block < kColumns / 64; ++block) {
      if (block >= plan.blocks()) continue;
      const float* const pair = take();
      if (block == 0) meanwhile();
      multiply_scores(sums[block], space.scores(), pair);
    }
  }
  PL_DEV void add(PlainPart (&sums)[kColumns / 64]) {
    add(sums, [] {});
  }
};

// The bias of each diagonal of scores whose first key is `distance0` from the first query. All threads wait
// for each other before and behind it.
template <class T>
PL_DEV void fill_diagonals(const GpuAttention<T>& a, int head, int distance0, float* biases) {
  const auto i = static_cast<int>(threadIdx.x);
  if (a.bias.table != nullptr) biases[i] = a.bias_of(head, distance0 + i - (kPlainTile - 1));
}
// Products to logits.
template <TileRowsAre kRows, class T>
PL_DEV void finish_logits(const GpuAttention<T>& a, const float* biases, PlainPart& scores) {
  constexpr int kSign = kRows == TileRowsAre::queries ? 1 : -1;
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j) {
      const int diagonal = kSign * (plain_column(j) - plain_row(i)) + kPlainTile - 1;
      const float bias = a.bias.table == nullptr ? 0.0F : biases[diagonal];
      scores[i][j] = a.softcap > 0 ? a.softcap * tanh_of(scores[i][j] * (a.scale / a.softcap))
                                   : gpu::fma(scores[i][j], a.scale, bias);
    }
  }
}
// `seen(row)`: the columns that a row sees.
template <class Seen>
PL_DEV void hide_scores(PlainPart& scores, int column0, const Seen& seen) {
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    const auto columns = seen(plain_row(i));
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j)
      if (!columns.has(column0 + plain_column(j))) scores[i][j] = kPlainUnseen;
  }
}
PL_DEV float weight_of(float logit, float top) {
  return logit == kPlainUnseen ? 0.0F : gpu::exp(logit - top);
}

// The slope of a capped logit, by its product.
PL_DEV float capped_slope(float logit, float cap) {
  if (cap == 0 || logit == kPlainUnseen) return 1.0F;
  const float bent = logit / cap;
  return gpu::fma(-bent, bent, 1.0F);
}

// Bits of the thread's scores that are kept. A counter serves a row's four columns ...
template <class T>
PL_DEV DrawnKept draw_rows_of_queries(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int q0,
                                      int k0) {
  DrawnKept kept;
  if (a.dropout.samples == nullptr) return kept;
  kept = {0, a.dropout.factor};
  for (int i = 0; i < kPlainRows; ++i) {
    const int query = q0 + plain_row(i);
    uint32_t words[4];
    philox(stream_of(a, at.begin + (query < at.length ? query : at.length - 1)),
           first_counter(at.head, k0) + static_cast<uint32_t>(plain_x()), words);
    PL_UNROLL
    for (int w = 0; w < 4; ++w)
      if (words[w] >= a.dropout.threshold) kept.keep(i, w);
  }
  return kept;
}
// ... or every other row of a column, where rows are keys.
template <class T>
PL_DEV DrawnKept draw_rows_of_keys(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, int head, int q0,
                                   int k0) {
  DrawnKept kept;
  if (a.dropout.samples == nullptr) return kept;
  kept = {0, a.dropout.factor};
  for (int j = 0; j < kPlainKeys; ++j) {
    const int query = q0 + plain_column(j);
    const PhiloxStream stream = stream_of(a, at.begin + (query < at.length ? query : at.length - 1));
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4];
      philox(stream, first_counter(head, k0) + static_cast<uint32_t>(plain_row(half)), words);
      PL_UNROLL
      for (int w = 0; w < 4; ++w)
        if (words[w] >= a.dropout.threshold) kept.keep(half + 2 * w, j);
    }
  }
  return kept;
}

// The softmax of the thread's rows: the largest logit so far, and its part of the sum of exp(logit - top).
struct PlainSoftmax {
  float top[kPlainRows], sum[kPlainRows];

  PL_DEV PlainSoftmax() {
    PL_UNROLL
    for (int i = 0; i < kPlainRows; ++i) {
      top[i] = kPlainUnseen;
      sum[i] = 0;
    }
  }
  // Logits to probabilities times e^(what the top is below the largest); what was summed shrinks to the new
  // top.
  template <int kBlocks>
  PL_DEV void take(PlainPart& scores, PlainPart (&sums)[kBlocks]) {
    PL_UNROLL
    for (int i = 0; i < kPlainRows; ++i) {
      float largest = top[i];
      PL_UNROLL
      for (int j = 0; j < kPlainKeys; ++j) largest = gpu::max(largest, scores[i][j]);
      PL_UNROLL
      for (int d = 8; d > 0; d /= 2) largest = gpu::max(largest, __shfl_xor_sync(gpu::kAll, largest, d));
      const float shrink = gpu::exp(top[i] - largest);
      top[i] = largest;
      float added = 0;
      PL_UNROLL
      for (int j = 0; j < kPlainKeys; ++j) {
        scores[i][j] = weight_of(scores[i][j], largest);
        added += scores[i][j];
      }
      sum[i] = gpu::fma(sum[i], shrink, added);
      PL_UNROLL
      for (int block = 0; block < kBlocks; ++block) {
        PL_UNROLL
        for (int v = 0; v < 4; ++v) sums[block][i][v] *= shrink;
      }
    }
  }
  // The sums of whole rows.
  PL_DEV void finish() {
    PL_UNROLL
    for (int i = 0; i < kPlainRows; ++i) {
      PL_UNROLL
      for (int d = 8; d > 0; d /= 2) sum[i] += __shfl_xor_sync(gpu::kAll, sum[i], d);
    }
  }
};

PL_DEV void drop_scores(PlainPart& scores, const DrawnKept& kept) {
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j) scores[i][j] *= kept.of(i, j);
  }
}

template <int kColumns, class T>
PL_DEV void put_plain(const GpuAttentionForward<T>& f, const GpuAttentionSite<T>& at,
                      const PlainPlan<kColumns>& plan, int q0, PlainSoftmax& rows,
                      const PlainPart (&sums)[kColumns / 64]) {
  rows.finish();
  float factors[kPlainRows];
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    factors[i] = rows.sum[i] > 0 ? 1.0F / rows.sum[i] : 0.0F;
    const int query = q0 + plain_row(i);
    if (query < at.length && plain_x() == 0 && plan.part == 0)  // no key: zero, as the output
      f.lse[at.row_at(query, f.a.heads)] = rows.sum[i] > 0 ? rows.top[i] + gpu::log(rows.sum[i]) : 0.0F;
  }
  T* const to = f.o + at.q_at(q0, plan.dim) + plan.first();
  PL_UNROLL
  for (int block = 0; block < kColumns / 64; ++block)
    put_sums(to + block * 64, at.q_stride, at.length - q0, plan.left(block), sums[block], factors);
}

// Rows of q, or what is like it; and of k.
template <class T>
PL_DEV RowsOf<T> query_rows(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, const T* q, int row) {
  return {q + at.q_at(row, a.head_dim), at.q_stride, at.length - row};
}
template <class T>
PL_DEV RowsOf<T> key_rows(const GpuAttention<T>& a, const GpuAttentionSite<T>& at, const T* k, int row) {
  return {k + at.kv_at(row, a.head_dim), at.kv_stride, at.key_length - row};
}

// Those of the forward, for 64 queries: of keys, then of their values.
template <class T, int kColumns, class Site>
struct ForwardPanels {
  const GpuAttention<T>& a;
  const Site& at;
  const PlainPlan<kColumns>& plan;
  int q0, key, end, which = 0;

  PL_DEV void bring(PanelPairs<T>& pairs) {
    if (key >= end) return;
    const auto queries = query_rows(a, at, a.q, q0);
    PanelPair<std::remove_cv_t<decltype(queries)>> pair;
    if (which < plan.depth)
      pair = plan.of_depth(queries, key_rows(a, at, a.k, key), which);
    else
      pair = plan.of_block(key_rows(a, at, a.v, key), which - plan.depth);
    pairs.bring(pair);
    if (++which < plan.depth + plan.blocks()) return;
    which = 0;
    key += kPlainTile;
  }
};

template <class T, int kColumns, class Site = GpuAttentionSite<T>>
__global__ void __launch_bounds__(kPlainThreads, kColumns == 64 ? 3 : 2)
    attention_plain(GpuAttentionForward<T> f) {
  const GpuAttention<T>& a = f.a;
  PL_LAUNCHED_SHARED(gpu::Pack<float>, shared, kPlainSharedBytes / 16);
  const PlainSpace space(shared);
  const PlainPlan<kColumns> plan(a.head_dim);
  const GpuTile tile = tile_of_block<kPlainTile>(a.queries.starts, a.live_sequences(), shared);
  const Site at(a, tile.sequence, plan.head());
  // The last queries see the most keys: they begin first.
  const int q0 = tile.behind * kPlainTile;
  if (q0 >= at.length) return;
  const int end = a.end_of_keys(at.number(q0 + kPlainTile - 1), at.key_length);
  const Columns seen_by_all = keys_of(a, at, q0, q0 + kPlainTile - 1);
  int k0 = a.first_key(at.number(q0)) / kPlainTile * kPlainTile;
  using Panels = ForwardPanels<T, kColumns, Site>;
  PlainProducts<T, kColumns, Panels> products(plan, space, Panels{a, at, plan, q0, k0, end});
  PlainPart sums[kColumns / 64] = {};
  PlainSoftmax softmax;
  for (; k0 < end; k0 += kPlainTile) {
    PlainPart scores = {};
    fill_diagonals(a, at.head, k0 - q0, space.biases());
    products.multiply(scores);
    finish_logits<TileRowsAre::queries>(a, space.biases(), scores);
    if (!seen_by_all.hold_all(k0, kPlainTile))
      hide_scores(scores, k0, [&](int row) { return keys_of(a, at, q0 + row, q0 + row); });
    softmax.take(scores, sums);
    drop_scores(scores, draw_rows_of_queries(a, at, q0, k0));
    put_scores(space.scores(), scores);
    products.add(sums);
  }
  put_plain<kColumns>(f, at, plan, q0, softmax, sums);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
