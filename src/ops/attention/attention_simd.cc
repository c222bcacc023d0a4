// Forward of attention: online softmax over blocks of keys. A work item is a block of queries of one sequence
// with all query heads of one key-value head; it packs each block of keys once for all of them.
#include <omp.h>

#include "ops/attention/attention_extras.h"
#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_operands.h"
#include "ops/pointwise/simd_tanh.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// Finite, so that the difference of two of them is 0; far below any logit.
constexpr float kMasked = -1e30F;

struct Workspace {
  float* k_transposed;  // [dim][key block]
  float* v;             // [key block][padded]
  float* q;             // [rows][padded]
  float* o;             // [rows][padded], unnormalised
  float* maximum;       // [rows]
  float* sum;           // [rows]
  float* logits;        // [tile][key block]
  float* gathered;      // of trees: rows of keys or values that lie apart, as they are
  BiasVectors bias;     // of all threads
};

Workspace workspace_of(void* scratch, int thread, int threads, const AttentionShape& shape) {
  const int64_t dim = attention_padded_dim(shape);
  const int64_t rows = attention_query_block(shape) * attention_group(shape);
  const int64_t floats = attention_forward_thread_floats(shape);
  Workspace w{};
  w.k_transposed = static_cast<float*>(scratch) + thread * floats;
  w.bias = bias_vectors(shape, static_cast<float*>(scratch) + threads * floats);
  w.v = w.k_transposed + kAttentionKeyBlock * dim;
  w.q = w.v + kAttentionKeyBlock * dim;
  w.o = w.q + rows * dim;
  w.logits = w.o + rows * dim;
  w.maximum = w.logits + kAttentionForwardTile * kAttentionKeyBlock;
  w.sum = w.maximum + rows;
  w.gathered = w.maximum + (2 * rows + 15) / 16 * 16;
  return w;
}

// Queries [query0, query0 + queries) of one sequence and the heads of one key-value head. Positions count
// from the first key; pointers are to the item's first row and to key 0.
template <class T>
struct Item {
  const T* q;
  const T* k;
  const T* v;
  T* o;
  float* lse;  // null where nobody wants it
  int64_t query0;
  int64_t queries;
  int64_t keys;   // that the last query sees, from key 0 on
  int64_t token;  // row of query0 on its axis
  int64_t head;   // the first of them
  const SequenceTable& sequences;
  int64_t segment;  // where the queries are
  int64_t before;   // keys of its ancestors; k and v are those of row 0 where there are trees
};

// Rows of keys or values in their order, [key0, key0 + count) of those that an item sees, `stride` apart.
template <class T>
struct KeyBlock {
  const T* rows;
  int64_t stride;
};

// Those of a segment and its ancestors. A block that lies in one of them is read where it is, another one is
// put together.
template <class T>
KeyBlock<T> tree_block(const Workspace& w, const Item<T>& item, const T* data, int64_t stride, int64_t dim,
                       int64_t key0, int64_t count) {
  const SequenceTable& tree = item.sequences;
  T* const to = reinterpret_cast<T*>(w.gathered);
  int64_t segment = item.segment;
  for (int64_t begin = item.before;; begin -= tree.starts[segment + 1] - tree.starts[segment]) {
    const int64_t end = begin + tree.starts[segment + 1] - tree.starts[segment];
    const T* const rows = data + (tree.starts[segment] - begin) * stride;
    if (begin <= key0 && key0 + count <= end) return {rows + key0 * stride, stride};
    for (int64_t key = larger(key0, begin); key < smaller(key0 + count, end); ++key)
      __builtin_memcpy(to + (key - key0) * dim, rows + key * stride, static_cast<size_t>(dim) * sizeof(T));
    if (begin <= key0) return {to, dim};
    segment = tree.parents[segment];
  }
}

template <class T>
KeyBlock<T> key_block(const Workspace& w, const Item<T>& item, const T* data, const AttentionShape& shape,
                      int64_t key0, int64_t count) {
  const int64_t stride = shape.kv_heads * shape.head_dim;
  if (item.sequences.parents == nullptr) return {data + key0 * stride, stride};
  return tree_block(w, item, data, stride, shape.head_dim, key0, count);
}

// Logits scaled, with their bias where there is one; returns the largest.
float scale_row(float* logits, int64_t columns, float scale, const float* bias) {
  const Vec s = set1(scale);
  Vec top = set1(kMasked);
  if (bias == nullptr) {
    for (int64_t c = 0; c < columns; c += Vec::kWidth) {
      const Vec x = load(logits + c) * s;
      store(logits + c, x);
      top = max(top, x);
    }
  } else {
    for (int64_t c = 0; c < columns; c += Vec::kWidth) {
      const Vec x = fma(load(logits + c), s, load(bias + c));
      store(logits + c, x);
      top = max(top, x);
    }
  }
  return reduce_max(top);
}

// Products to logits below `cap`.
void cap_row(float* logits, int64_t columns, float scale, float cap) {
  const Vec inner = set1(scale / cap), outer = set1(cap);
  for (int64_t c = 0; c < columns; c += Vec::kWidth)
    store(logits + c, tanh_of(load(logits + c) * inner) * outer);
}

// One row of logits to probabilities relative to the running maximum; scales what was summed before.
void softmax_row(float* logits, int64_t columns, Visible keep, float scale, const float* bias, float& maximum,
                 float& sum, float* o, int64_t dim) {
  const bool whole = keep.begin == 0 && keep.end == columns;
  if (!whole) fill_outside(logits, columns, keep, kMasked);
  const float block_maximum = scale_row(logits, columns, scale, bias);
  if (block_maximum > maximum) {
    const Vec old = exp(set1(maximum - block_maximum));
    maximum = block_maximum;
    sum *= reduce_max(old);
    for (int64_t c = 0; c < dim; c += Vec::kWidth) store(o + c, load(o + c) * old);
  }
  const Vec m = set1(maximum);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) store(logits + c, exp(load(logits + c) - m));
  if (!whole) fill_outside(logits, columns, keep, 0.0F);
  Vec total = zero();
  for (int64_t c = 0; c < columns; c += Vec::kWidth) total = total + load(logits + c);
  sum += reduce_add(total);
}

void drop_row(const AttentionDropout& dropout, int64_t token, int64_t head, int64_t key0, float* row,
              int64_t columns) {
  KeptRow kept;
  draw_kept(dropout, token, head, key0, kept);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) store(row + c, load(row + c) * load(kept.factors + c));
}

// Rows [row0, row0 + rows) of the item against the packed keys [key0, key0 + count).
template <class T>
void tile_forward(const Workspace& w, const AttentionProblem& problem, const Item<T>& item, int64_t row0,
                  int64_t rows, int64_t key0, int64_t count) {
  const int64_t group = attention_group(problem.shape);
  const int64_t dim = attention_padded_dim(problem.shape);
  const int64_t last_key = last_seen(problem, item.query0 + (row0 + rows - 1) / group, item.keys);
  if (last_key < key0) return;
  const int64_t first_query = item.query0 + row0 / group;
  if (problem.window > 0 && first_query - problem.window + 1 >= key0 + count) return;
  const int64_t columns = columns_up_to(last_key, key0);
  using Ops = Operands<T>;
  const int64_t q_row = Ops::row_stride(dim);
  matmul<typename Ops::Elements>(rows, columns, Ops::depth(problem.shape.head_dim),
                                 {w.q + row0 * q_row, q_row, 1}, w.k_transposed, kAttentionKeyBlock, w.logits,
                                 kAttentionKeyBlock, false);
  const bool plain = w.bias.values == nullptr && problem.dropout.probability == 0;
  for (int64_t r = 0; r < rows; ++r) {
    float* const logits = w.logits + r * kAttentionKeyBlock;
    const int64_t row = row0 + r;
    const int64_t query = item.query0 + row / group;
    const Visible keep = visible(query, last_seen(problem, query, item.keys), key0, count, problem.window);
    const int64_t head = plain ? 0 : item.head + row % group;
    const bool capped = problem.softcap > 0;
    if (capped) cap_row(logits, columns, problem.scale, problem.softcap);
    if (keep.begin < keep.end)
      softmax_row(logits, columns, keep, capped ? 1.0F : problem.scale,
                  plain ? nullptr : w.bias.row(head, key0 - query), w.maximum[row], w.sum[row],
                  w.o + row * dim, dim);
    else
      fill_outside(logits, columns, {0, 0}, 0.0F);
    if (!plain && problem.dropout.probability > 0)
      drop_row(problem.dropout, item.token + row / group, head, key0, logits, columns);
    Ops::pack_probabilities(logits, columns);
  }
  matmul<typename Ops::Elements>(rows, dim, Ops::depth(smaller(columns, count)),
                                 {w.logits, kAttentionKeyBlock, 1}, w.v, dim, w.o + row0 * dim, dim, true);
}

template <class T>
void load_queries(const Workspace& w, const AttentionShape& shape, const Item<T>& item) {
  const int64_t group = attention_group(shape);
  const int64_t dim = attention_padded_dim(shape);
  for (int64_t row = 0; row < item.queries * group; ++row) {
    const T* q = item.q + (row / group * shape.heads + row % group) * shape.head_dim;
    Operands<T>::pack_row(q, w.q + row * Operands<T>::row_stride(dim), shape.head_dim);
    for (int64_t c = 0; c < dim; c += Vec::kWidth) store(w.o + row * dim + c, zero());
    w.maximum[row] = kMasked;
    w.sum[row] = 0.0F;
  }
}

template <class T>
void store_outputs(const Workspace& w, const AttentionShape& shape, const Item<T>& item) {
  const int64_t group = attention_group(shape);
  const int64_t dim = attention_padded_dim(shape);
  for (int64_t row = 0; row < item.queries * group; ++row) {
    const int64_t at = row / group * shape.heads + row % group;
    const bool seen = w.sum[row] > 0;  // else there is not one key
    narrow_row(w.o + row * dim, item.o + at * shape.head_dim, shape.head_dim,
               seen ? 1.0F / w.sum[row] : 0.0F);
    if (item.lse != nullptr) item.lse[at] = seen ? w.maximum[row] + __builtin_logf(w.sum[row]) : 0.0F;
  }
}

template <class T>
void item_forward(const Workspace& w, const AttentionProblem& problem, const Item<T>& item) {
  const AttentionShape& shape = problem.shape;
  const int64_t rows = item.queries * attention_group(shape);
  const int64_t keys = item.keys;
  const int64_t first_key = problem.window > 0 ? larger(0, item.query0 - problem.window + 1) : 0;
  load_queries(w, shape, item);
  for (int64_t key0 = first_key / kAttentionKeyBlock * kAttentionKeyBlock; key0 < keys;
       key0 += kAttentionKeyBlock) {
    const int64_t count = smaller(kAttentionKeyBlock, keys - key0);
    const KeyBlock<T> k = key_block(w, item, item.k, shape, key0, count);
    Operands<T>::pack_keys(k.rows, k.stride, count, shape.head_dim, w.k_transposed);
    const KeyBlock<T> v = key_block(w, item, item.v, shape, key0, count);
    Operands<T>::pack_values(v.rows, v.stride, count, shape.head_dim, attention_padded_dim(shape), w.v);
    for (int64_t row = 0; row < rows; row += kAttentionForwardTile)
      tile_forward(w, problem, item, row, smaller(kAttentionForwardTile, rows - row), key0, count);
  }
  store_outputs(w, shape, item);
}

// Item `index` of the batch: key-value heads innermost, then query blocks from the last (the longest) down.
template <class T>
Item<T> item_of(const AttentionForward<T>& a, int64_t index) {
  const AttentionShape& shape = a.problem.shape;
  const int64_t block = attention_query_block(shape);
  const int64_t head = index % shape.kv_heads;
  int64_t rest = index / shape.kv_heads;
  int64_t s = 0;
  int64_t blocks = 0;
  for (;; ++s) {
    blocks = (a.sequences.starts[s + 1] - a.sequences.starts[s] + block - 1) / block;
    if (rest < blocks) break;
    rest -= blocks;
  }
  const SequenceTable& keys = keys_of(a);
  const bool tree = a.sequences.parents != nullptr;
  int64_t before = 0;
  for (int64_t up = s; tree && a.sequences.parents[up] >= 0;) {
    up = a.sequences.parents[up];
    before += a.sequences.starts[up + 1] - a.sequences.starts[up];
  }
  const int64_t token = a.sequences.starts[s] + (blocks - 1 - rest) * block;
  const int64_t query0 = before + token - a.sequences.starts[s];
  const int64_t queries = smaller(block, a.sequences.starts[s + 1] - token);
  const int64_t q_head = head * attention_group(shape);
  const int64_t kv = ((tree ? 0 : keys.starts[s]) * shape.kv_heads + head) * shape.head_dim;
  const int64_t q = (token * shape.heads + q_head) * shape.head_dim;
  return {a.q + q,
          a.k + kv,
          a.v + kv,
          a.o + q,
          a.lse + token * shape.heads + q_head,
          query0,
          queries,
          1 + last_seen(a.problem, query0 + queries - 1, keys.starts[s + 1] - keys.starts[s]),
          token,
          q_head,
          a.sequences,
          s,
          before};
}

template <class T>
void forward(const AttentionForward<T>& a) {
  const AttentionShape& shape = a.problem.shape;
  const int64_t block = attention_query_block(shape);
  int64_t items = 0;
  for (int64_t s = 0; s < a.sequences.count; ++s)
    items += (a.sequences.starts[s + 1] - a.sequences.starts[s] + block - 1) / block;
#pragma omp parallel num_threads(a.threads)
  {
    const Workspace w = workspace_of(a.scratch, omp_get_thread_num(), a.threads, shape);
    make_bias(shape, a.bias_table, w.bias);
    zero_padding(a.sequences, a.problem.tokens, a.o, shape.heads * shape.head_dim);
    zero_padding(a.sequences, a.problem.tokens, a.lse, shape.heads);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < items * shape.kv_heads; ++i) item_forward(w, a.problem, item_of(a, i));
  }
}

template <class T>
void cached(const AttentionCached<T>& a) {
  const AttentionShape& shape = a.problem.shape;
  const int64_t block = attention_query_block(shape);
  const int64_t blocks = (a.problem.tokens + block - 1) / block;
  const SequenceTable one;
#pragma omp parallel num_threads(a.threads)
  {
    const Workspace w = workspace_of(a.scratch, omp_get_thread_num(), a.threads, shape);
    make_bias(shape, a.bias_table, w.bias);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < blocks * shape.kv_heads; ++i) {
      const int64_t head = i % shape.kv_heads;
      const int64_t token = (blocks - 1 - i / shape.kv_heads) * block;
      const int64_t queries = smaller(block, a.problem.tokens - token);
      const int64_t query0 = a.kv_length - a.problem.tokens + token;
      const int64_t q_head = head * attention_group(shape);
      const int64_t q = (token * shape.heads + q_head) * shape.head_dim;
      const int64_t kv = head * shape.head_dim;
      const Item<T> item{a.q + q,
                         a.k_cache + kv,
                         a.v_cache + kv,
                         a.o + q,
                         nullptr,
                         query0,
                         queries,
                         1 + last_seen(a.problem, query0 + queries - 1, a.kv_length),
                         token,
                         q_head,
                         one,
                         0,
                         0};
      item_forward(w, a.problem, item);
    }
  }
}

}  // namespace

void attention_forward(const AttentionForward<float>& a) { forward(a); }
void attention_forward(const AttentionForward<uint16_t>& a) { forward(a); }
void attention_cached(const AttentionCached<float>& a) { cached(a); }
void attention_cached(const AttentionCached<uint16_t>& a) { cached(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
