// Backward of attention, the logits recomputed from q, k and lse. A pair (sequence, key-value head) walks
// its keys, some blocks at a time; for each it visits the rows that see them, tile by tile:
//   P = exp(scale * Q K^T - lse)    dP = dO V^T    dS = scale * P * (dP - rowsum(o * dO))
//   d_v += P^T dO    d_k += dS^T Q    d_q += dS K
// d_k and d_v of these keys stay in L2; d_q of the pair waits in scratch as f32. Five products, the least
// there is. A pair may be split into parts that take every n-th stretch of keys; their d_q are added in part
// order. The gradient of a bias is a sum of dS / scale per distance, which every pair reduces to buckets.
// Of trees a pair is (tree, key-value head): the rows that see a segment's keys are those of the segment and,
// right behind it, of all its descendants, so that the ancestors' d_k and d_v are sums in one fixed order.
// A window leaves out of them those whose number on their path is too far on.
#include <omp.h>

#include "ops/attention/attention_extras.h"
#include "ops/attention/attention_kernels.h"
#include "ops/attention/attention_operands.h"
#include "ops/pointwise/simd_tanh.h"
#include "ops/segments.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kBackwardKeys = kAttentionBackwardKeys * kAttentionKeyBlock;

// The workspace's sizes; for packed operands as f32, which are the largest.
struct Workspace {
  float* k;             // [keys][padded]
  float* k_transposed;  // [key blocks][dim][key block]
  float* v_transposed;
  float* d_k;  // [keys][padded], sums
  float* d_v;
  float* q;  // [tile][padded]
  float* d_o;
  float* p;          // [tile][key block]
  float* ds;         // [tile][key block]
  BiasVectors bias;  // of all threads

  // The workspace of a later key block, `floats` behind the first.
  [[nodiscard]] Workspace at(int64_t floats) const {
    return {
        k + floats, k_transposed + floats, v_transposed + floats, d_k + floats, d_v + floats, q, d_o, p, ds,
        bias};
  }
};

Workspace workspace_of(void* scratch, int thread, const AttentionShape& shape) {
  const int64_t dim = attention_padded_dim(shape);
  const int64_t keys = kBackwardKeys * dim;
  const int64_t rows = kAttentionBackwardTile * dim;
  Workspace w{};
  w.k = static_cast<float*>(scratch) + thread * attention_backward_thread_floats(shape);
  w.k_transposed = w.k + keys;
  w.v_transposed = w.k_transposed + keys;
  w.d_k = w.v_transposed + keys;
  w.d_v = w.d_k + keys;
  w.q = w.d_v + keys;
  w.d_o = w.q + rows;
  w.p = w.d_o + rows;
  w.ds = w.p + kAttentionBackwardTile * kAttentionKeyBlock;
  return w;
}

// The values that a part keeps for all rows of its pair.
struct PartState {
  float* d_q;  // [rows][padded]
  float* lse;  // [rows]
  float* o_dot_d_o;
  int32_t* numbers;  // of a tree: of each token, how many stand before it on its path
  float* d_bias;     // [group][distances]; null where nobody wants it

  [[nodiscard]] int64_t number(int64_t token) const { return numbers == nullptr ? token : numbers[token]; }
  // The number of a query as counted by the row of the first key that it is asked for: behind the keys of one
  // segment all that descend from it stand.
  [[nodiscard]] int64_t query(int64_t token, int64_t key0) const {
    return numbers == nullptr ? token : key0 + numbers[token] - numbers[key0];
  }
};

// Behind the threads' workspaces: the parts', the vectors of the bias, and its gradient's sums.
template <class T>
float* parts_of(const AttentionBackward<T>& a) {
  return static_cast<float*>(a.scratch) + a.threads * attention_backward_thread_floats(a.problem.shape);
}
template <class T>
float* bias_of(const AttentionBackward<T>& a) {
  return parts_of(a) + a.threads * attention_backward_part_floats(a.problem.shape);
}
template <class T>
float* bias_gradient_of(const AttentionBackward<T>& a) {
  return bias_of(a) + attention_bias_floats(a.problem.shape);
}

template <class T>
PartState part_state_of(const AttentionBackward<T>& a, int64_t slot) {
  const AttentionShape& shape = a.problem.shape;
  const int64_t rows = attention_backward_rows(shape);
  float* base = parts_of(a) + slot * attention_backward_part_floats(shape);
  float* const d_bias = a.d_bias == nullptr ? nullptr
                                            : bias_gradient_of(a) + slot * attention_group(shape) *
                                                                        attention_distance_floats(shape);
  float* const lse = base + rows * attention_padded_dim(shape);
  return {base, lse, lse + rows,
          a.sequences.parents == nullptr ? nullptr : reinterpret_cast<int32_t*>(lse + 2 * rows), d_bias};
}

// The segments of a tree, from its root on; a sequence alone is one of one segment.
struct Segments {
  int64_t first, end;
};
inline Segments tree_of(const SequenceTable& sequences, int64_t tree) {
  if (sequences.parents == nullptr) return {tree, tree + 1};
  Segments found{0, 0};
  for (int64_t s = 0, seen = -1; s < sequences.count; ++s) {
    if (sequences.parents[s] < 0 && ++seen > tree) break;
    if (seen == tree && sequences.parents[s] < 0) found.first = s;
    found.end = s + 1;
  }
  return found;
}
inline int64_t trees(const SequenceTable& sequences) {
  if (sequences.parents == nullptr) return sequences.count;
  int64_t roots = 0;
  for (int64_t s = 0; s < sequences.count; ++s) roots += sequences.parents[s] < 0 ? 1 : 0;
  return roots;
}

// One sequence, or tree of them, and one key-value head. Row r is query r / group, head r % group.
template <class T>
struct Pair {
  const AttentionBackward<T>& a;
  int64_t sequence;  // or tree
  int64_t head;
  Segments segments;
  int64_t start;  // first token
  int64_t length;
  int64_t key_start;
  int64_t keys;

  Pair(const AttentionBackward<T>& args, int64_t index)
      : a(args),
        sequence(index / args.problem.shape.kv_heads),
        head(index % args.problem.shape.kv_heads),
        segments(tree_of(args.sequences, sequence)),
        start(args.sequences.starts[segments.first]),
        length(args.sequences.starts[segments.end] - start),
        key_start(keys_of(args).starts[segments.first]),
        keys(keys_of(args).starts[segments.end] - key_start) {}

  [[nodiscard]] const AttentionShape& shape() const { return a.problem.shape; }
  [[nodiscard]] int64_t group() const { return attention_group(shape()); }
  [[nodiscard]] int64_t rows() const { return length * group(); }
  // Index of a row into [T, N], of a key into [T, K].
  [[nodiscard]] int64_t row_at(int64_t row) const {
    return (start + row / group()) * shape().heads + head * group() + row % group();
  }
  [[nodiscard]] int64_t key_at(int64_t key) const { return (key_start + key) * shape().kv_heads + head; }
  // The places where a segment's keys begin and end.
  [[nodiscard]] int64_t key_begin(int64_t segment) const { return keys_of(a).starts[segment] - key_start; }
  [[nodiscard]] int64_t key_end(int64_t segment) const { return key_begin(segment + 1); }
  // The end of the queries that are of a segment or descend from it.
  [[nodiscard]] int64_t branches_end(int64_t segment) const {
    return a.sequences.starts[subtree_end(a.sequences, segment)] - start;
  }
  // The last key that a row sees.
  [[nodiscard]] int64_t last_key(int64_t row) const { return last_seen(a.problem, row / group(), keys); }
};

template <class T>
float dot(const T* a, const T* b, int64_t n) {
  Vec sum = zero();
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) sum = fma(load(a + i), load(b + i), sum);
  if (i < n) {
    const Mask rest = first(static_cast<int>(n - i));
    sum = fma(load(a + i, rest), load(b + i, rest), sum);
  }
  return reduce_add(sum);
}

template <class T>
void number_tokens(const Pair<T>& pair, int32_t* numbers) {
  for (int64_t segment = pair.segments.first; segment < pair.segments.end; ++segment) {
    const int64_t parent = pair.a.sequences.parents[segment];
    int32_t number = parent < 0 ? 0 : numbers[pair.key_end(parent) - 1] + 1;
    for (int64_t token = pair.key_begin(segment); token < pair.key_end(segment); ++token)
      numbers[token] = number++;
  }
}

template <class T>
void start_part(const Pair<T>& pair, const PartState& state) {
  const int64_t head_dim = pair.shape().head_dim;
  const int64_t dim = attention_padded_dim(pair.shape());
  for (int64_t r = 0; r < pair.rows(); ++r) {
    const int64_t at = pair.row_at(r);
    state.lse[r] = pair.a.lse[at];
    state.o_dot_d_o[r] = dot(pair.a.o + at * head_dim, pair.a.d_o + at * head_dim, head_dim);
    for (int64_t c = 0; c < dim; c += Vec::kWidth) store(state.d_q + r * dim + c, zero());
  }
  if (state.numbers != nullptr) number_tokens(pair, state.numbers);
  if (state.d_bias == nullptr) return;
  for (int64_t i = 0; i < pair.group() * attention_distance_floats(pair.shape()); i += Vec::kWidth)
    store(state.d_bias + i, zero());
}

// P and dS of one row, from its logits and dP.
void softmax_gradient_row(float* p, float* ds, int64_t columns, Visible keep, float scale, float lse,
                          float o_dot_d_o) {
  const Vec s = set1(scale);
  const Vec l = set1(-lse);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) store(p + c, exp(fma(load(p + c), s, l)));
  if (keep.begin > 0 || keep.end < columns) fill_outside(p, columns, keep, 0.0F);
  const Vec d = set1(o_dot_d_o);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) store(ds + c, load(p + c) * s * (load(ds + c) - d));
}

// The same where logits are capped: dS is times the slope 1 - (logit / cap)^2.
void capped_gradient_row(float* p, float* ds, int64_t columns, Visible keep, const AttentionProblem& problem,
                         float lse, float o_dot_d_o) {
  const Vec inner = set1(problem.scale / problem.softcap), cap = set1(problem.softcap);
  const Vec l = set1(lse), d = set1(o_dot_d_o), s = set1(problem.scale);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) {
    const Vec bent = tanh_of(load(p + c) * inner);
    store(p + c, exp(fma(bent, cap, zero() - l)));
    store(ds + c, s * (load(ds + c) - d) * fnma(bent, bent, set1(1.0F)));
  }
  if (keep.begin > 0 || keep.end < columns) fill_outside(p, columns, keep, 0.0F);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) store(ds + c, load(p + c) * load(ds + c));
}

// The same with bias, whose gradient is summed in `d_bias` (null: not wanted), and with dropout, whose
// factors may be null too: P as the values were weighed with it.
void softmax_gradient_row(float* p, float* ds, int64_t columns, Visible keep, float scale, float lse,
                          float o_dot_d_o, const float* bias, float* d_bias, const KeptRow* kept) {
  const Vec s = set1(scale);
  const Vec l = set1(-lse);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) {
    const Vec shift = bias == nullptr ? l : load(bias + c) + l;
    store(p + c, exp(fma(load(p + c), s, shift)));
  }
  if (keep.begin > 0 || keep.end < columns) fill_outside(p, columns, keep, 0.0F);
  const Vec d = set1(o_dot_d_o);
  for (int64_t c = 0; c < columns; c += Vec::kWidth) {
    const Vec factor = kept == nullptr ? set1(1.0F) : load(kept->factors + c);
    const Vec g = load(p + c) * fma(load(ds + c), factor, zero() - d);
    if (d_bias != nullptr) store(d_bias + c, load(d_bias + c) + g);
    store(p + c, load(p + c) * factor);
    store(ds + c, g * s);
  }
}

// The same for row `row` of a pair, against the keys from key0 on.
template <class T>
[[gnu::noinline]] void biased_or_dropped_row(const Workspace& w, const PartState& state, const Pair<T>& pair,
                                             int64_t row, float* p, float* ds, int64_t columns, Visible keep,
                                             int64_t key0) {
  const AttentionProblem& problem = pair.a.problem;
  const int64_t query = row / pair.group();
  const int64_t of_group = row % pair.group();
  const int64_t head = pair.head * pair.group() + of_group;
  float* const d_bias = state.d_bias == nullptr
                            ? nullptr
                            : state.d_bias + of_group * w.bias.stride + w.bias.here + key0 - query;
  KeptRow kept;
  const bool drops = problem.dropout.probability > 0;
  if (drops) draw_kept(problem.dropout, pair.start + query, head, key0, kept);
  softmax_gradient_row(p, ds, columns, keep, problem.scale, state.lse[row], state.o_dot_d_o[row],
                       w.bias.row(head, key0 - query), d_bias, drops ? &kept : nullptr);
}

// Rows [row0, row0 + rows), packed, against the packed keys [key0, key0 + count) of one block.
template <class T>
void block_backward(const Workspace& w, const PartState& state, const Pair<T>& pair, const TileRows& q,
                    const TileRows& d_o, int64_t row0, int64_t rows, int64_t key0, int64_t count) {
  const AttentionProblem& problem = pair.a.problem;
  const int64_t dim = attention_padded_dim(problem.shape);
  const int64_t columns = columns_up_to(pair.last_key(row0 + rows - 1), key0);
  const int64_t keys = smaller(columns, count);
  using Ops = Operands<T>;
  using Elements = typename Ops::Elements;
  const int64_t dim_depth = Ops::depth(problem.shape.head_dim);
  const int64_t row_depth = Ops::depth(rows);
  matmul<Elements>(rows, columns, dim_depth, q.along_dim, w.k_transposed, kAttentionKeyBlock, w.p,
                   kAttentionKeyBlock, false);
  matmul<Elements>(rows, columns, dim_depth, d_o.along_dim, w.v_transposed, kAttentionKeyBlock, w.ds,
                   kAttentionKeyBlock, false);
  const int64_t group = pair.group();
  const bool plain = w.bias.values == nullptr && problem.dropout.probability == 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = row0 + r;
    float* const p = w.p + r * kAttentionKeyBlock;
    float* const ds = w.ds + r * kAttentionKeyBlock;
    const int64_t query = state.query(row / group, key0);
    const Visible keep = visible(query, last_seen(problem, query, pair.keys), key0, count, problem.window);
    if (problem.softcap > 0)
      capped_gradient_row(p, ds, columns, keep, problem, state.lse[row], state.o_dot_d_o[row]);
    else if (plain)
      softmax_gradient_row(p, ds, columns, keep, problem.scale, state.lse[row], state.o_dot_d_o[row]);
    else
      biased_or_dropped_row(w, state, pair, row, p, ds, columns, keep, key0);
  }
  const TileScores scores = Ops::pack_scores(w.p, w.ds, rows, columns);
  matmul<Elements>(keys, dim, row_depth, scores.p_transposed, d_o.along_rows, dim, w.d_v, dim, true);
  matmul<Elements>(keys, dim, row_depth, scores.ds_transposed, q.along_rows, dim, w.d_k, dim, true);
  matmul<Elements>(rows, dim, Ops::depth(keys), scores.ds, w.k, dim, state.d_q + row0 * dim, dim, true);
}

// Keys of one segment, and where the queries end that may see them.
struct Stretch {
  int64_t key0, count;
  int64_t queries_end;
};

// The end of the queries that have a key of the stretch in their window; among those of a tree there are
// others.
template <class T>
int64_t queries_end(const Pair<T>& pair, const PartState& state, const Stretch& stretch) {
  const int64_t window = pair.a.problem.window;
  if (window == 0 || state.numbers != nullptr) return stretch.queries_end;
  return smaller(stretch.queries_end, stretch.key0 + stretch.count - 1 + window);
}

// The first query that sees a key, or one behind it.
template <class T>
int64_t first_query(const Pair<T>& pair, int64_t key) {
  if (pair.shape().causal) return key;
  const int64_t window = pair.a.problem.window;
  return window > 0 ? larger(0, key - window + 1) : 0;
}

// The next of them, from `query` on.
template <class T>
int64_t next_query(const Pair<T>& pair, const PartState& state, const Stretch& stretch, int64_t query) {
  const int64_t window = pair.a.problem.window;
  if (window == 0 || state.numbers == nullptr) return query;
  const int64_t end = state.numbers[stretch.key0 + stretch.count - 1] + window;
  while (query < stretch.queries_end && state.numbers[query] >= end) ++query;
  return query;
}

// The least number of the queries that rows [row0, row0 + rows) are of.
template <class T>
int64_t least_number(const Pair<T>& pair, const PartState& state, int64_t row0, int64_t rows) {
  const int64_t first = row0 / pair.group();
  int64_t least = state.number(first);
  if (state.numbers == nullptr) return least;
  for (int64_t query = first + 1; query <= (row0 + rows - 1) / pair.group(); ++query)
    least = smaller(least, state.numbers[query]);
  return least;
}

// Rows [row0, row0 + rows) against those of the stretch's packed key blocks that they see.
template <class T>
void tile_backward(const Workspace& w, const PartState& state, const Pair<T>& pair, int64_t row0,
                   int64_t rows, const Stretch& stretch) {
  const int64_t key0 = stretch.key0, count = stretch.count;
  const int64_t head_dim = pair.shape().head_dim, window = pair.a.problem.window;
  const int64_t dim = attention_padded_dim(pair.shape());
  const auto rows_of = [&](const T* data) {
    return [&pair, data, row0, head_dim](int64_t r) { return data + pair.row_at(row0 + r) * head_dim; };
  };
  const TileRows q = Operands<T>::pack_tile(rows, head_dim, dim, rows_of(pair.a.q), w.q);
  const TileRows d_o = Operands<T>::pack_tile(rows, head_dim, dim, rows_of(pair.a.d_o), w.d_o);
  const int64_t last_key = pair.last_key(row0 + rows - 1);
  const int64_t least = window > 0 ? least_number(pair, state, row0, rows) : 0;
  for (int64_t first = 0; first < count && key0 + first <= last_key; first += kAttentionKeyBlock) {
    const int64_t in_block = smaller(kAttentionKeyBlock, count - first);
    if (window == 0 || least < state.number(key0 + first + in_block - 1) + window)
      block_backward(w.at(first * dim), state, pair, q, d_o, row0, rows, key0 + first, in_block);
  }
}

// A stretch's keys: their d_k and d_v, and what they add to d_q.
template <class T>
void keys_backward(const Workspace& w, const PartState& state, const Pair<T>& pair, const Stretch& stretch) {
  const int64_t key0 = stretch.key0, count = stretch.count;
  const AttentionBackward<T>& a = pair.a;
  const int64_t head_dim = pair.shape().head_dim;
  const int64_t dim = attention_padded_dim(pair.shape());
  const int64_t stride = pair.shape().kv_heads * head_dim;
  const int64_t at = pair.key_at(key0) * head_dim;
  for (int64_t first = 0; first < count; first += kAttentionKeyBlock) {
    const Workspace block = w.at(first * dim);
    const int64_t in_block = smaller(kAttentionKeyBlock, count - first);
    const int64_t from = at + first * stride;
    Operands<T>::pack_values(a.k + from, stride, in_block, head_dim, dim, block.k);
    Operands<T>::pack_keys(a.k + from, stride, in_block, head_dim, block.k_transposed);
    Operands<T>::pack_keys(a.v + from, stride, in_block, head_dim, block.v_transposed);
  }
  for (int64_t i = 0; i < count * dim; i += Vec::kWidth) {
    store(w.d_k + i, zero());
    store(w.d_v + i, zero());
  }
  const int64_t group = pair.group(), row_end = queries_end(pair, state, stretch) * group;
  for (int64_t row = first_query(pair, key0) * group; row < row_end; row += kAttentionBackwardTile) {
    row = larger(row, next_query(pair, state, stretch, row / group) * group);
    if (row < row_end)
      tile_backward(w, state, pair, row, smaller(kAttentionBackwardTile, row_end - row), stretch);
  }
  for (int64_t r = 0; r < count; ++r) {
    narrow_row(w.d_k + r * dim, a.d_k + at + r * stride, head_dim, 1.0F);
    narrow_row(w.d_v + r * dim, a.d_v + at + r * stride, head_dim, 1.0F);
  }
}

// Adds up the parts' d_q of one row into the first part's and stores it.
template <class T>
void finish_row(const Pair<T>& pair, int64_t slot, int64_t parts, int64_t row) {
  const int64_t dim = attention_padded_dim(pair.shape());
  float* sum = part_state_of(pair.a, slot).d_q + row * dim;
  for (int64_t part = 1; part < parts; ++part) {
    const float* other = part_state_of(pair.a, slot + part).d_q + row * dim;
    for (int64_t c = 0; c < dim; c += Vec::kWidth) store(sum + c, load(sum + c) + load(other + c));
  }
  narrow_row(sum, pair.a.d_q + pair.row_at(row) * pair.shape().head_dim, pair.shape().head_dim, 1.0F);
}

// The sums of a sequence's part: [heads][buckets].
template <class T>
float* bucket_sums_of(const AttentionBackward<T>& a, int64_t sequence, int64_t part, int64_t parts) {
  const AttentionShape& shape = a.problem.shape;
  return bias_gradient_of(a) + a.threads * attention_group(shape) * attention_distance_floats(shape) +
         (sequence * parts + part) * shape.heads * shape.buckets;
}

// A part's sums over distances to sums over buckets. Those of a bucket are neighbours.
template <class T>
void sum_buckets(const BiasVectors& bias, const PartState& state, const Pair<T>& pair, int64_t part,
                 int64_t parts) {
  const AttentionShape& shape = pair.shape();
  const int64_t begin = bias.here - (pair.length - 1);
  const int64_t end = bias.here + (shape.causal ? 1 : pair.length);
  for (int64_t i = 0; i < pair.group(); ++i) {
    float* const sums =
        bucket_sums_of(pair.a, pair.sequence, part, parts) + (pair.head * pair.group() + i) * shape.buckets;
    for (int64_t bucket = 0; bucket < shape.buckets; ++bucket) sums[bucket] = 0.0F;
    double sum = 0;
    for (int64_t at = begin; at < end; ++at) {
      sum += static_cast<double>(state.d_bias[i * bias.stride + at]);
      if (at + 1 < end && bias.buckets[at + 1] == bias.buckets[at]) continue;
      sums[bias.buckets[at]] = static_cast<float>(sum);
      sum = 0;
    }
  }
}

// The gradient of the table, over all sequences and parts in their order, shared out over the threads.
template <class T>
void add_bucket_sums(const AttentionBackward<T>& a, int64_t parts) {
  const AttentionShape& shape = a.problem.shape;
#pragma omp for schedule(static)
  for (int64_t i = 0; i < shape.heads * shape.buckets; ++i) {
    double sum = 0;
    for (int64_t at = 0; at < a.sequences.count * parts; ++at)
      sum += static_cast<double>(bucket_sums_of(a, 0, at, parts)[i]);
    a.d_bias[i % shape.buckets * shape.heads + i / shape.buckets] = static_cast<float>(sum);
  }
}

template <class T>
void part_backward(const Workspace& w, const PartState& state, const Pair<T>& pair, int64_t part,
                   int64_t parts) {
  start_part(pair, state);
  int64_t stretch = 0;
  for (int64_t segment = pair.segments.first; segment < pair.segments.end; ++segment) {
    const int64_t keys_end = pair.key_end(segment);
    const int64_t queries = pair.branches_end(segment);
    for (int64_t key0 = pair.key_begin(segment); key0 < keys_end; key0 += kBackwardKeys)
      if (stretch++ % parts == part)
        keys_backward(w, state, pair, {key0, smaller(kBackwardKeys, keys_end - key0), queries});
  }
  if (state.d_bias != nullptr) sum_buckets(w.bias, state, pair, part, parts);
}

// Enough heads for all threads: each pair is one thread's.
template <class T>
void whole_pairs(const AttentionBackward<T>& a, const Workspace& w, int64_t pairs) {
  const int slot = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < pairs; ++i) {
    const Pair<T> pair(a, i);
    part_backward(w, part_state_of(a, slot), pair, 0, 1);
    for (int64_t r = 0; r < pair.rows(); ++r) finish_row(pair, slot, 1, r);
  }
}

// Threads share pairs: waves of as many parts as there are threads, then the sums over the parts.
template <class T>
void split_pairs(const AttentionBackward<T>& a, const Workspace& w, int64_t pairs, int64_t parts) {
  const int64_t wave = a.threads / parts;
  for (int64_t first_pair = 0; first_pair < pairs; first_pair += wave) {
    const int64_t in_wave = smaller(wave, pairs - first_pair);
#pragma omp for schedule(static, 1)
    for (int64_t i = 0; i < in_wave * parts; ++i)
      part_backward(w, part_state_of(a, i), Pair<T>(a, first_pair + i / parts), i % parts, parts);
    for (int64_t i = 0; i < in_wave; ++i) {
      const Pair<T> pair(a, first_pair + i);
#pragma omp for schedule(static)
      for (int64_t r = 0; r < pair.rows(); ++r) finish_row(pair, i * parts, parts, r);
    }
  }
}

template <class T>
void backward(const AttentionBackward<T>& a) {
  const AttentionShape& shape = a.problem.shape;
  const int64_t parts = attention_backward_parts(shape, a.threads);
  const int64_t pairs = trees(a.sequences) * shape.kv_heads;
#pragma omp parallel num_threads(a.threads)
  {
    Workspace w = workspace_of(a.scratch, omp_get_thread_num(), shape);
    w.bias = bias_vectors(shape, bias_of(a));
    make_bias(shape, a.bias_table, w.bias);
    zero_padding(a.sequences, a.problem.tokens, a.d_q, shape.heads * shape.head_dim);
    zero_padding(keys_of(a), key_tokens_of(a), a.d_k, shape.kv_heads * shape.head_dim);
    zero_padding(keys_of(a), key_tokens_of(a), a.d_v, shape.kv_heads * shape.head_dim);
    if (parts == 1)
      whole_pairs(a, w, pairs);
    else
      split_pairs(a, w, pairs, parts);
    if (a.d_bias != nullptr) add_bucket_sums(a, parts);
  }
}

}  // namespace

void attention_backward(const AttentionBackward<float>& a) { backward(a); }
void attention_backward(const AttentionBackward<uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
