// Backward of gated linear attention. The states are made again: first those at the start of every group of
// chunks; then, group by group from the last, the states before each chunk, the gradients of the states
// behind each chunk, and from both the rows' gradients, each chunk and head on its own.
#include <omp.h>

#include "ops/scan/gla_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

template <class T>
struct Pass {
  GlaBackward<T> a;
  float* starts;     // [groups, K, keys, values]: the state before each group's first chunk
  float* running;    // [K, keys, values]
  float* d_running;  // [K, keys, values]: of the state behind the chunk at hand
  float* states;     // [kGlaGroup, K, keys, values]
  float* d_states;   // [kGlaGroup, K, keys, values]: of the states behind the chunks
  float* forks;      // [forks, K, keys, values]: the states behind segments that several go on from
  float* d_forks;    // their gradients, as far as they are summed up
  float* thread_space;
};

template <class T>
Pass<T> pass_of(const GlaBackward<T>& a) {
  const GlaShape& s = a.problem.shape;
  const int64_t all = s.kv_heads * gla_state(s);
  auto* const starts = static_cast<float*>(a.scratch);
  float* const running = starts + gla_most_groups(s) * all;
  float* const states = running + 2 * all;
  float* const forks = states + 2 * kGlaGroup * all;
  return {a,
          starts,
          running,
          running + all,
          states,
          states + kGlaGroup * all,
          forks,
          forks + s.forks * all,
          forks + 2 * s.forks * all};
}

// Walks the states of chunks `begin` to `end` from what `running` holds; visit(chunk's index, state) before
// each.
template <class T, class Visit>
void walk_states(const Pass<T>& pass, const Columns& columns, int64_t begin, int64_t end, float* space,
                 Visit visit) {
  const GlaBackward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  float* const state = pass.running + columns.head * gla_state(s) + columns.first;
  for (int64_t i = begin; i < end; ++i) {
    const Chunk chunk = chunk_at(a.sequences, i);
    begin_state(s, a.sequences, chunk, columns, pass.forks, state);
    visit(i, state);
    if (i + 1 == end) break;
    if (!chunk.last) advance_state(a.problem, columns, chunk, a.k, a.v, a.gate, space, state);
    end_state(s, a.sequences, chunk, columns, state, pass.forks);
  }
}

// `d_state` is the gradient of the state that a segment starts from: of its parent's last state all that
// continue it have a part, the last of them first.
template <class T>
void hand_to_parent(const Pass<T>& pass, int64_t segment, const Columns& columns, float* d_state) {
  const GlaShape& s = pass.a.problem.shape;
  const SequenceTable& sequences = pass.a.sequences;
  const int64_t parent = parent_of(sequences, segment);
  if (!forks(sequences, parent)) return;
  float* const sum = at_fork(s, sequences, parent, columns, pass.d_forks);
  if (parent + 1 == segment)  // the last part; the parent's last chunk is next
    add_columns(s, sum, columns.count, d_state);
  else if (is_last_child(sequences, segment))
    copy_columns(s, d_state, columns.count, sum);
  else
    add_columns(s, d_state, columns.count, sum);
}

// Gradients of the states behind chunks `begin` to `end`, from the last down.
template <class T>
void walk_gradients(const Pass<T>& pass, const Columns& columns, int64_t begin, int64_t end, float* space) {
  const GlaBackward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  const int64_t keys = gla_keys(s);
  float* const decays = space;
  float* const prefix = decays + kGlaChunk * keys;
  float* const q = prefix + kGlaChunk * keys;
  float* const d_o = q + kGlaChunk * keys;
  float* const d_state = pass.d_running + columns.head * gla_state(s) + columns.first;
  const int64_t live = smaller(columns.count, s.value_dim - columns.first);
  for (int64_t i = end - 1; i >= begin; --i) {
    const Chunk chunk = chunk_at(a.sequences, i);
    if (chunk.last) clear_columns(s, columns.count, d_state);
    const int64_t slot = (i - begin) * s.kv_heads + columns.head;
    copy_columns(s, d_state, columns.count, pass.d_states + slot * gla_state(s) + columns.first);
    if (chunk.first) continue;
    const int64_t rows = chunk.padded();
    const int64_t kv_token = chunk.token * s.kv_heads + columns.head;
    load_decays(a.problem, a.gate + kv_token * s.key_dim, s.kv_heads * s.key_dim, chunk.rows, rows, decays);
    products_up_to(decays, 0, rows, keys, prefix);
    for (int64_t g = 0; g < gla_group(s); ++g) {
      const int64_t q_token = chunk.token * s.heads + columns.head * gla_group(s) + g;
      load_head(a.q + q_token * s.key_dim, s.heads * s.key_dim, chunk.rows, rows, s.key_dim, a.problem.scale,
                q);
      multiply(q, prefix, rows * keys, q);
      load_head(a.d_o + q_token * s.value_dim + columns.first, s.heads * s.value_dim, chunk.rows, rows, live,
                1.0F, d_o);
      decay_and_add(s, g == 0 ? prefix + (rows - 1) * keys : nullptr, q, d_o, rows, columns.count, d_state);
    }
    if (chunk.begins) hand_to_parent(pass, chunk.segment, columns, d_state);
  }
}

// Buffers of the rows of a chunk and a key-value head.
struct Rows {
  float *decays, *k, *d_k, *q, *d_q, *d_gate, *prefix, *behind, *within, *before, *made, *keys_first;
  float *v, *d_v, *d_o, *v_first, *d_o_first;  // the last two [values][kGlaChunk]
  float *scores, *d_scores;
  float* from_behind;  // of each key: what the state behind the chunk adds to the gate's gradient in all rows
};

Rows rows_of(const GlaShape& s, float* space) {
  const auto take = [&](int64_t floats) {
    float* const at = space;
    space += floats;
    return at;
  };
  Rows r{};
  float** const of_keys[] = {&r.decays, &r.k,      &r.d_k,    &r.q,      &r.d_q,  &r.d_gate,
                             &r.prefix, &r.behind, &r.within, &r.before, &r.made, &r.keys_first};
  float** const of_values[] = {&r.v, &r.d_v, &r.d_o, &r.v_first, &r.d_o_first};
  for (float** const one : of_keys) *one = take(kGlaChunk * gla_keys(s));
  for (float** const one : of_values) *one = take(kGlaChunk * gla_values(s));
  r.scores = take(kGlaChunk * kGlaChunk);
  r.d_scores = take(kGlaChunk * kGlaChunk);
  r.from_behind = take(gla_keys(s));
  return r;
}

// to [rows][keys] = factors * (x y^T), x_first [values][kGlaChunk] being x by columns and y a state.
void times_state(const GlaShape& s, const float* x_first, const float* y, const float* factors, int64_t rows,
                 float* keys_first, float* to) {
  const int64_t keys = gla_keys(s);
  matmul(keys, rows, gla_values(s), {y, gla_values(s), 1}, x_first, kGlaChunk, keys_first, kGlaChunk, false);
  transpose(keys_first, kGlaChunk, keys, rows, to, keys);
  multiply(to, factors, rows * keys, to);
}

// d_q and d_k by way of the scores within a chunk are added.
void add_score_gradients(const Rows& b, int64_t rows, int64_t width) {
  for (int64_t first = 0; first < rows; first += kGlaSub) {
    const float* const d_block = b.d_scores + first * kGlaChunk;
    if (first > 0) {
      reference_decays(b.decays, first, width, b.within, b.before);
      multiply(b.before, b.k, first * width, b.keys_first);
      matmul(kGlaSub, width, first, {d_block, kGlaChunk, 1}, b.keys_first, width, b.made, width, false);
      float* const decay = b.within + first * width;
      for (int64_t c = 0; c < kGlaSub * width; c += Vec::kWidth) {
        float* const d_q = b.d_q + first * width + c;
        store(d_q, fma(load(decay + c), load(b.made + c), load(d_q)));
      }
      multiply(decay, b.q + first * width, kGlaSub * width, decay);
      matmul(first, width, kGlaSub, {d_block, 1, kGlaChunk}, decay, width, b.made, width, false);
      for (int64_t c = 0; c < first * width; c += Vec::kWidth)
        store(b.d_k + c, fma(load(b.before + c), load(b.made + c), load(b.d_k + c)));
    }
    for (int64_t c = 0; c < width; c += Vec::kWidth)
      for (int64_t i = first; i < first + kGlaSub; ++i) {
        const Vec q = load(b.q + i * width + c);
        Vec d_q = load(b.d_q + i * width + c);
        Vec decay = set1(1.0F);
        for (int64_t j = i; j >= first; --j) {
          const Vec d = set1(b.d_scores[i * kGlaChunk + j]) * decay;
          float* const d_k = b.d_k + j * width + c;
          d_q = fma(d, load(b.k + j * width + c), d_q);
          store(d_k, fma(d, q, load(d_k)));
          decay = decay * load(b.decays + j * width + c);
        }
        store(b.d_q + i * width + c, d_q);
      }
  }
}

// Adds one query head of the group to d_k, d_v and the gate's gradient; writes its d_q.
template <class T>
void query_head(const GlaBackward<T>& a, const Chunk& chunk, int64_t q_head, const float* state,
                const Rows& b) {
  const GlaShape& s = a.problem.shape;
  const int64_t keys = gla_keys(s);
  const int64_t values = gla_values(s);
  const int64_t rows = chunk.padded();
  const int64_t q_token = chunk.token * s.heads + q_head;
  load_head(a.q + q_token * s.key_dim, s.heads * s.key_dim, chunk.rows, rows, s.key_dim, a.problem.scale,
            b.q);
  load_head(a.d_o + q_token * s.value_dim, s.heads * s.value_dim, chunk.rows, rows, s.value_dim, 1.0F, b.d_o);
  scores_of(b.q, b.k, b.decays, rows, keys, {b.within, b.before, b.keys_first}, b.scores);
  for (int64_t first = 0; first < rows; first += kGlaSub) {
    float* const d_block = b.d_scores + first * kGlaChunk;
    matmul(kGlaSub, first + kGlaSub, values, {b.d_o + first * values, values, 1}, b.v_first, kGlaChunk,
           d_block, kGlaChunk, false);
    matmul(kGlaSub, values, rows - first, {b.scores + first * kGlaChunk + first, 1, kGlaChunk},
           b.d_o + first * values, values, b.d_v + first * values, values, true);
  }
  if (chunk.first) {
    for (int64_t c = 0; c < rows * keys; c += Vec::kWidth) store(b.d_q + c, zero());
  } else {
    transpose(b.d_o, values, rows, values, b.d_o_first, kGlaChunk);
    times_state(s, b.d_o_first, state, b.prefix, rows, b.keys_first, b.d_q);
  }
  add_score_gradients(b, rows, keys);
  for (int64_t c = 0; c < rows * keys; c += Vec::kWidth)
    store(b.d_gate + c, fma(load(b.q + c), load(b.d_q + c), load(b.d_gate + c)));
  for (int64_t r = 0; r < chunk.rows; ++r)
    narrow_row(b.d_q + r * keys, a.d_q + (q_token + r * s.heads) * s.key_dim, s.key_dim, a.problem.scale);
}

// x where a >= b, else 0.
inline Vec where_at_least(Vec a, Vec b, Vec x) {
#if defined(PLIMSOLL_ISA_avx512)
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ), x.v)};
#else
  return {_mm256_and_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ), x.v)};
#endif
}

// The gradient by the gate's logit from that by its logarithmic decay: nothing where clamp_min holds.
template <class T>
void store_gate_gradient(const GlaProblem& p, const float* d_decay, const T* gate, T* to) {
  for_lanes(p.shape.key_dim, [&](int64_t c, auto lanes) {
    const Vec x = lanes.get(gate + c);
    const Vec slope = sigmoid(zero() - x) / set1(p.normalizer);
    const Vec free = log_sigmoid(x) / set1(p.normalizer);
    lanes.put(to + c, where_at_least(free, set1(p.clamp_min), lanes.get(d_decay + c) * slope));
  });
}

// d_gate holds the sums over query heads of q d_q; the gradient is the sum from each row on of q d_q - k d_k,
// and what comes from behind the chunk.
template <class T>
void write_gate_gradient(const GlaBackward<T>& a, const Chunk& chunk, int64_t head, const Rows& b) {
  const GlaShape& s = a.problem.shape;
  const int64_t keys = gla_keys(s);
  for (int64_t c = 0; c < keys; c += Vec::kWidth) {
    Vec sum = load(b.from_behind + c);
    for (int64_t r = chunk.rows - 1; r >= 0; --r) {
      float* const at = b.d_gate + r * keys + c;
      sum = sum + fnma(load(b.k + r * keys + c), load(b.d_k + r * keys + c), load(at));
      store(at, sum);
    }
  }
  for (int64_t r = 0; r < chunk.rows; ++r) {
    const int64_t at = ((chunk.token + r) * s.kv_heads + head) * s.key_dim;
    store_gate_gradient(a.problem, b.d_gate + r * keys, a.gate + at, a.d_gate + at);
  }
}

// d_k and d_v begin with what they have by way of the state behind the chunk, d_gate with nothing.
void begin_gradients(const GlaShape& s, int64_t rows, const float* state, const float* d_state,
                     const Rows& b) {
  const int64_t keys = gla_keys(s);
  const int64_t values = gla_values(s);
  times_state(s, b.v_first, d_state, b.behind, rows, b.keys_first, b.d_k);
  multiply(b.k, b.behind, rows * keys, b.made);
  matmul(rows, values, keys, {b.made, keys, 1}, d_state, values, b.d_v, values, false);
  const float* const chunk_decay = b.prefix + (rows - 1) * keys;
  for (int64_t c = 0; c < keys; ++c)
    b.from_behind[c] = chunk_decay[c] * dot(state + c * values, d_state + c * values, values);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < keys; c += Vec::kWidth) {
      const int64_t at = r * keys + c;
      store(b.from_behind + c, fma(load(b.k + at), load(b.d_k + at), load(b.from_behind + c)));
      store(b.d_gate + at, zero());
    }
}
// The same where the sequence ends.
void begin_last_gradients(const GlaShape& s, int64_t rows, const Rows& b) {
  const auto clear = [](float* to, int64_t count) {
    for (int64_t c = 0; c < count; c += Vec::kWidth) store(to + c, zero());
  };
  clear(b.d_k, rows * gla_keys(s));
  clear(b.d_v, rows * gla_values(s));
  clear(b.d_gate, rows * gla_keys(s));
  clear(b.from_behind, gla_keys(s));
}

template <class T>
void write_gradients(const Pass<T>& pass, const Chunk& chunk, int64_t head, const float* state,
                     const float* d_state, float* space) {
  const GlaBackward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  const int64_t keys = gla_keys(s);
  const int64_t values = gla_values(s);
  const int64_t rows = chunk.padded();
  const Rows b = rows_of(s, space);
  const int64_t kv_token = chunk.token * s.kv_heads + head;
  const int64_t key_stride = s.kv_heads * s.key_dim;
  const int64_t value_stride = s.kv_heads * s.value_dim;
  load_decays(a.problem, a.gate + kv_token * s.key_dim, key_stride, chunk.rows, rows, b.decays);
  load_head(a.k + kv_token * s.key_dim, key_stride, chunk.rows, rows, s.key_dim, 1.0F, b.k);
  load_head(a.v + kv_token * s.value_dim, value_stride, chunk.rows, rows, s.value_dim, 1.0F, b.v);
  products_up_to(b.decays, 0, rows, keys, b.prefix);
  products_behind(b.decays, rows - 1, keys, b.behind);
  transpose(b.v, values, rows, values, b.v_first, kGlaChunk);

  if (chunk.last)
    begin_last_gradients(s, rows, b);
  else
    begin_gradients(s, rows, state, d_state, b);
  for (int64_t g = 0; g < gla_group(s); ++g) query_head(a, chunk, head * gla_group(s) + g, state, b);
  write_gate_gradient(a, chunk, head, b);
  for (int64_t r = 0; r < chunk.rows; ++r) {
    narrow_row(b.d_k + r * keys, a.d_k + (kv_token + r * s.kv_heads) * s.key_dim, s.key_dim, 1.0F);
    narrow_row(b.d_v + r * values, a.d_v + (kv_token + r * s.kv_heads) * s.value_dim, s.value_dim, 1.0F);
  }
}

// One group: states, their gradients, rows. Called by all threads.
template <class T>
void group_backward(const Pass<T>& pass, int64_t group, int64_t chunks, float* space) {
  const GlaBackward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  const int64_t begin = group * kGlaGroup;
  const int64_t end = smaller(begin + kGlaGroup, chunks);
  const int64_t all = s.kv_heads * gla_state(s);
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < 2 * column_items(s); ++i) {
    const Columns columns = columns_of(s, i / 2);
    const int64_t at = columns.head * gla_state(s) + columns.first;
    if (i % 2 == 1) {
      walk_gradients(pass, columns, begin, end, space);
      continue;
    }
    copy_columns(s, pass.starts + group * all + at, columns.count, pass.running + at);
    walk_states(pass, columns, begin, end, space, [&](int64_t chunk, const float* state) {
      copy_columns(s, state, columns.count, pass.states + (chunk - begin) * all + at);
    });
  }
#pragma omp for schedule(dynamic, 1)
  for (int64_t i = 0; i < (end - begin) * s.kv_heads; ++i)
    write_gradients(pass, chunk_at(a.sequences, begin + i / s.kv_heads), i % s.kv_heads,
                    pass.states + i * gla_state(s), pass.d_states + i * gla_state(s), space);
}

template <class T>
void backward(const GlaBackward<T>& a) {
  const Pass<T> pass = pass_of(a);
  const GlaShape& s = a.problem.shape;
  const int64_t chunks = count_chunks(a.sequences);
  const int64_t groups = (chunks + kGlaGroup - 1) / kGlaGroup;
#pragma omp parallel num_threads(a.threads)
  {
    float* const space = pass.thread_space + omp_get_thread_num() * gla_backward_thread_floats(s);
    zero_padding(a.sequences, s.tokens, a.d_q, s.heads * s.key_dim);
    zero_padding(a.sequences, s.tokens, a.d_k, s.kv_heads * s.key_dim);
    zero_padding(a.sequences, s.tokens, a.d_v, s.kv_heads * s.value_dim);
    zero_padding(a.sequences, s.tokens, a.d_gate, s.kv_heads * s.key_dim);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < column_items(s); ++i) {
      const Columns columns = columns_of(s, i);
      const int64_t at = columns.head * gla_state(s) + columns.first;
      walk_states(pass, columns, 0, (groups - 1) * kGlaGroup + 1, space,
                  [&](int64_t chunk, const float* state) {
                    if (chunk % kGlaGroup == 0)
                      copy_columns(s, state, columns.count,
                                   pass.starts + chunk / kGlaGroup * s.kv_heads * gla_state(s) + at);
                  });
    }
    for (int64_t group = groups - 1; group >= 0; --group) group_backward(pass, group, chunks, space);
  }
}

}  // namespace

void gla_backward(const GlaBackward<float>& a) { backward(a); }
void gla_backward(const GlaBackward<uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
