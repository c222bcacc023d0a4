// Forward of gated linear attention, and generation. Groups of chunks go one after the other: first the
// states that their chunks start from, each column block of a head on its own; then the rows, each chunk and
// head on its own.
#include <omp.h>

#include "ops/scan/gla_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// The arguments and workspace of a forward pass. With `carried` [K, keys, values] there is one sequence,
// which continues from that state and leaves its last one there.
template <class T>
struct Pass {
  GlaForward<T> a;
  bool carries = false;
  float* running = nullptr;  // [K, keys, values]
  float* states = nullptr;   // [kGlaGroup, K, keys, values]
  float* forks = nullptr;    // [forks, K, keys, values]
  float* thread_space = nullptr;
};

template <class T>
Pass<T> pass_of(const GlaForward<T>& a, bool carries) {
  const GlaShape& s = a.problem.shape;
  auto* const base = static_cast<float*>(a.scratch);
  const int64_t all = s.kv_heads * gla_state(s);
  float* const forks = base + (1 + kGlaGroup) * all;
  return {a, carries, base, base + all, forks, forks + s.forks * all};
}

// States of chunks `begin` to `end`, for some columns of a head.
template <class T>
void walk_states(const Pass<T>& pass, const Columns& columns, int64_t begin, int64_t end, float* space) {
  const GlaForward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  float* const state = pass.running + columns.head * gla_state(s) + columns.first;
  for (int64_t i = begin; i < end; ++i) {
    const Chunk chunk = chunk_at(a.sequences, i);
    if (!pass.carries) begin_state(s, a.sequences, chunk, columns, pass.forks, state);
    const int64_t slot = (i - begin) * s.kv_heads + columns.head;
    copy_columns(s, state, columns.count, pass.states + slot * gla_state(s) + columns.first);
    if (!chunk.last || pass.carries) advance_state(a.problem, columns, chunk, a.k, a.v, a.gate, space, state);
    end_state(s, a.sequences, chunk, columns, state, pass.forks);
  }
}

// The outputs of a chunk for all query heads of a key-value head, from the state before it.
template <class T>
void write_outputs(const Pass<T>& pass, const Chunk& chunk, int64_t head, const float* state, float* space) {
  const GlaForward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  const int64_t keys = gla_keys(s);
  const int64_t values = gla_values(s);
  const int64_t rows = chunk.padded();
  float* const decays = space;
  float* const k = decays + kGlaChunk * keys;
  float* const q = k + kGlaChunk * keys;
  float* const prefix = q + kGlaChunk * keys;
  float* const score_space = prefix + kGlaChunk * keys;
  float* const v = score_space + 3 * kGlaChunk * keys;
  float* const o = v + kGlaChunk * values;
  float* const scores = o + kGlaChunk * values;
  const int64_t kv_token = chunk.token * s.kv_heads + head;
  load_decays(a.problem, a.gate + kv_token * s.key_dim, s.kv_heads * s.key_dim, chunk.rows, rows, decays);
  load_head(a.k + kv_token * s.key_dim, s.kv_heads * s.key_dim, chunk.rows, rows, s.key_dim, 1.0F, k);
  load_head(a.v + kv_token * s.value_dim, s.kv_heads * s.value_dim, chunk.rows, rows, s.value_dim, 1.0F, v);
  products_up_to(decays, 0, rows, keys, prefix);
  for (int64_t g = 0; g < gla_group(s); ++g) {
    const int64_t q_token = chunk.token * s.heads + head * gla_group(s) + g;
    load_head(a.q + q_token * s.key_dim, s.heads * s.key_dim, chunk.rows, rows, s.key_dim, a.problem.scale,
              q);
    scores_of(q, k, decays, rows, keys,
              {score_space, score_space + kGlaChunk * keys, score_space + 2 * kGlaChunk * keys}, scores);
    for (int64_t first = 0; first < rows; first += kGlaSub)
      matmul(kGlaSub, values, first + kGlaSub, {scores + first * kGlaChunk, kGlaChunk, 1}, v, values,
             o + first * values, values, false);
    if (!chunk.first || pass.carries) {
      multiply(q, prefix, rows * keys, q);
      matmul(rows, values, keys, {q, keys, 1}, state, values, o, values, true);
    }
    for (int64_t r = 0; r < chunk.rows; ++r)
      narrow_row(o + r * values, a.o + (q_token + r * s.heads) * s.value_dim, s.value_dim, 1.0F);
  }
}

template <class T>
void run(const Pass<T>& pass) {
  const GlaForward<T>& a = pass.a;
  const GlaShape& s = a.problem.shape;
  const int64_t chunks = count_chunks(a.sequences);
#pragma omp parallel num_threads(a.threads)
  {
    float* const space = pass.thread_space + omp_get_thread_num() * gla_forward_thread_floats(s);
    for (int64_t begin = 0; begin < chunks; begin += kGlaGroup) {
      const int64_t count = smaller(kGlaGroup, chunks - begin);
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < column_items(s); ++i)
        walk_states(pass, columns_of(s, i), begin, begin + count, space);
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < count * s.kv_heads; ++i)
        write_outputs(pass, chunk_at(a.sequences, begin + i / s.kv_heads), i % s.kv_heads,
                      pass.states + i * gla_state(s), space);
    }
  }
}

template <class T>
void forward(const GlaForward<T>& a) {
  const GlaShape& s = a.problem.shape;
#pragma omp parallel num_threads(a.threads)
  zero_padding(a.sequences, s.tokens, a.o, s.heads * s.value_dim);
  run(pass_of(a, false));
}

// Between [Dk, Dv] and its padded form.
void widen_state(const GlaShape& s, const float* from, float* to) {
  for (int64_t r = 0; r < s.key_dim; ++r)
    widen_row(from + r * s.value_dim, to + r * gla_values(s), s.value_dim);
  for (int64_t c = s.key_dim * gla_values(s); c < gla_state(s); c += Vec::kWidth) store(to + c, zero());
}
void narrow_state(const GlaShape& s, const float* from, float* to) {
  for (int64_t r = 0; r < s.key_dim; ++r)
    narrow_row(from + r * gla_values(s), to + r * s.value_dim, s.value_dim, 1.0F);
}

template <class T>
void many_tokens(const GlaCached<T>& a) {
  const GlaShape& s = a.problem.shape;
  const int32_t starts[2] = {0, static_cast<int32_t>(a.live)};
  const Pass<T> pass =
      pass_of(GlaForward<T>{a.problem, {starts, 1}, a.q, a.k, a.v, a.gate, a.o, a.scratch, a.threads}, true);
#pragma omp parallel for num_threads(a.threads)
  for (int64_t head = 0; head < s.kv_heads; ++head)
    widen_state(s, a.state + head * s.key_dim * s.value_dim, pass.running + head * gla_state(s));
  run(pass);
#pragma omp parallel for num_threads(a.threads)
  for (int64_t head = 0; head < s.kv_heads; ++head)
    narrow_state(s, pass.running + head * gla_state(s), a.state + head * s.key_dim * s.value_dim);
}

// One token: a visit of the state. `q` [group][keys], `decays` and `k` [keys]; `columns` of them at a time.
template <class T, class Lanes>
void visit_columns(const GlaCached<T>& a, int64_t head, int64_t column, Lanes lanes, const float* decays,
                   const float* k, const float* q) {
  const GlaShape& s = a.problem.shape;
  float* const state = a.state + head * s.key_dim * s.value_dim + column;
  const Vec v = lanes.get(a.v + head * s.value_dim + column);
  for (int64_t g = 0; g < gla_group(s); ++g) {
    Vec sum = zero();
    for (int64_t r = 0; r < s.key_dim; ++r) {
      Vec x = lanes.get(state + r * s.value_dim);
      if (g == 0) {
        x = fma(set1(k[r]), v, set1(decays[r]) * x);
        lanes.put(state + r * s.value_dim, x);
      }
      sum = fma(set1(q[g * gla_keys(s) + r]), x, sum);
    }
    lanes.put(a.o + (head * gla_group(s) + g) * s.value_dim + column, sum);
  }
}

template <class T>
void one_token(const GlaCached<T>& a) {
  const GlaShape& s = a.problem.shape;
  const int64_t keys = gla_keys(s);
  auto* const base = static_cast<float*>(a.scratch);
#pragma omp parallel num_threads(a.threads)
  {
    float* const decays = base + omp_get_thread_num() * (2 + gla_group(s)) * keys;
    float* const k = decays + keys;
    float* const q = k + keys;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < column_items(s); ++i) {
      const Columns columns = columns_of(s, i);
      const int64_t head = columns.head;
      load_decays(a.problem, a.gate + head * s.key_dim, 0, 1, 1, decays);
      load_head(a.k + head * s.key_dim, 0, 1, 1, s.key_dim, 1.0F, k);
      load_head(a.q + head * gla_group(s) * s.key_dim, s.key_dim, gla_group(s), gla_group(s), s.key_dim,
                a.problem.scale, q);
      for_lanes(smaller(columns.count, s.value_dim - columns.first), [&](int64_t c, auto lanes) {
        visit_columns(a, head, columns.first + c, lanes, decays, k, q);
      });
    }
  }
}

template <class T>
void cached(const GlaCached<T>& a) {
  const GlaShape& s = a.problem.shape;
  if (a.fresh) {
#pragma omp parallel for num_threads(a.threads)
    for (int64_t i = 0; i < s.kv_heads * s.key_dim * s.value_dim; ++i) a.state[i] = 0.0F;
  }
  if (a.live == 1) return one_token(a);
  many_tokens(a);
}

}  // namespace

void gla_forward(const GlaForward<float>& a) { forward(a); }
void gla_forward(const GlaForward<uint16_t>& a) { forward(a); }
void gla_cached(const GlaCached<float>& a) { cached(a); }
void gla_cached(const GlaCached<uint16_t>& a) { cached(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
