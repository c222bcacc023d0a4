// Forward of the gated delta rule, and generation. A thread takes a value head of a sequence, or of a tree,
// from its first chunk to its last.
#include <omp.h>

#include "ops/delta/delta_rule_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// A worker's buffers.
struct Space {
  float *k, *k_columns, *k_to_end, *q;   // [rows][keys], the second by columns
  float *u, *o, *product;                // [rows][values]
  float *of_keys, *of_queries, *decays;  // [rows][kDeltaChunk]
  Triangle triangle;
  float* state;
  float* forks;
};

Space space_of(const DeltaShape& s, float* floats) {
  const int64_t keys = kDeltaChunk * delta_keys(s), values = kDeltaChunk * delta_values(s);
  constexpr int64_t kSquare = kDeltaChunk * kDeltaChunk;
  Floats f{floats};
  Space to{};
  f.take_all(keys, {&to.k, &to.k_columns, &to.k_to_end, &to.q});
  f.take_all(values, {&to.u, &to.o, &to.product});
  f.take_all(kSquare, {&to.of_keys, &to.of_queries, &to.decays});
  to.triangle = {to.of_keys, f.take(kDeltaChunk * kDeltaSub)};
  to.state = f.take(delta_state(s));
  to.forks = f.take(s.forks * delta_state(s));
  return to;
}

// The outputs of a chunk's rows, and the state behind it unless no chunk starts from that.
template <class T>
void walk_chunk(const DeltaForward<T>& a, const Chunk& chunk, int64_t head, bool was_zero, bool ends,
                const Space& b) {
  const DeltaShape& s = a.problem.shape;
  const int64_t keys = delta_keys(s), values = delta_values(s), rows = chunk.padded();
  const int64_t key_head = head / delta_group(s);
  Gates gates;
  load_gates(s, a.g, a.beta, chunk, head, gates);
  load_unit_rows(a.problem, a.k, chunk, key_head, 1.0F, nullptr, b.k);
  load_unit_rows(a.problem, a.q, chunk, key_head, query_factor(s), nullptr, b.q);
  transpose(b.k, keys, rows, keys, b.k_columns, kDeltaChunk);
  lower_products(b.k, b.k_columns, rows, keys, b.of_keys);
  lower_products(b.q, b.k_columns, rows, keys, b.of_queries);
  decays_between(gates, rows, b.decays);
  make_triangle(gates, b.of_keys, b.decays, rows, b.triangle);
  scale_rows(b.k, gates.to_end, rows, keys, b.k_to_end);
  const DeltaStep step{&gates, b.k, b.k_to_end, b.triangle};

  load_values(s, a.v, chunk, head, b.u);
  values_of_step(s, step, rows, was_zero ? nullptr : b.state, b.product, nullptr, b.u);
  if (!was_zero) {
    scale_rows(b.q, gates.from_start, rows, keys, b.q);
    product(rows, values, keys, {b.q, keys, 1}, b.state, values, b.o, values, false);
  }
  for (int64_t first = 0; first < rows; first += kDeltaSub) {
    float* const scores = b.of_queries + first * kDeltaChunk;
    for (int64_t r = 0; r < kDeltaSub; ++r)
      multiply(scores + r * kDeltaChunk, b.decays + (first + r) * kDeltaChunk, first + kDeltaSub,
               scores + r * kDeltaChunk);
    product(kDeltaSub, values, first + kDeltaSub, {scores, kDeltaChunk, 1}, b.u, values, b.o + first * values,
            values, !was_zero);
  }
  store_values(s, b.o, chunk, head, a.o);
  if (!ends) advance(s, step, rows, b.u, was_zero, b.state);
}

template <class T>
void walk_tree(const DeltaForward<T>& a, const Tree& tree, int64_t head, const Space& b) {
  const DeltaShape& s = a.problem.shape;
  for (int64_t segment = tree.begin; segment < tree.end; ++segment)
    for (int64_t i = 0, count = chunks_of(a.sequences, segment); i < count; ++i) {
      const Chunk chunk = chunk_at(a.sequences, i, segment);
      begin_state(s, a.sequences, chunk, b.forks, delta_state(s), b.state);
      walk_chunk(a, chunk, head, chunk.first, chunk.last, b);
      end_state(s, a.sequences, chunk, b.state, delta_state(s), b.forks);
    }
}

template <class T>
void forward(const DeltaForward<T>& a) {
  const DeltaShape& s = a.problem.shape;
  const int64_t tasks = count_trees(a.sequences) * s.heads;
  const auto workers = static_cast<int>(delta_workers(s.heads, s, a.threads));
#pragma omp parallel num_threads(workers)
  {
    const Space space =
        space_of(s, static_cast<float*>(a.scratch) + omp_get_thread_num() * delta_forward_floats(s));
    zero_padding(a.sequences, s.tokens, a.o, s.heads * s.value_dim);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) walk_tree(a, tree_at(a.sequences, i / s.heads), i % s.heads, space);
  }
}

// Between [Dk, Dv] and its padded form.
void widen_state(const DeltaShape& s, const float* from, float* to) {
  for (int64_t r = 0; r < s.key_dim; ++r)
    widen_row(from + r * s.value_dim, to + r * delta_values(s), s.value_dim);
  clear(to + s.key_dim * delta_values(s), (delta_keys(s) - s.key_dim) * delta_values(s));
}
void narrow_state(const DeltaShape& s, const float* from, float* to) {
  for (int64_t r = 0; r < s.key_dim; ++r)
    narrow_row(from + r * delta_values(s), to + r * s.value_dim, s.value_dim, 1.0F);
}

template <class T>
void many_tokens(const DeltaCached<T>& a, int64_t head, const Space& space) {
  const DeltaShape& s = a.problem.shape;
  const int32_t starts[2] = {0, static_cast<int32_t>(a.live)};
  const DeltaForward<T> all{a.problem, {starts, 1}, a.q, a.k, a.v, a.g, a.beta, a.o};
  float* const state = a.state + head * s.key_dim * s.value_dim;
  if (!a.fresh) widen_state(s, state, space.state);
  for (int64_t i = 0, count = chunks_of(all.sequences, 0); i < count; ++i)
    walk_chunk(all, chunk_at(all.sequences, i), head, a.fresh && i == 0, false, space);
  narrow_state(s, space.state, state);
}

// A token's step over some columns of a state: what the key finds there, then the update and the output.
template <class T, class Lanes>
void visit_columns(const DeltaCached<T>& a, int64_t head, int64_t column, Lanes lanes, float kept,
                   const float* k, const float* q) {
  const DeltaShape& s = a.problem.shape;
  float* const state = a.state + head * s.key_dim * s.value_dim + column;
  Vec found = zero();
  if (!a.fresh)
    for (int64_t r = 0; r < s.key_dim; ++r)
      found = fma(set1(k[r]), lanes.get(state + r * s.value_dim), found);
  const Vec v = lanes.get(a.v + head * s.value_dim + column);
  const Vec u = set1(a.beta[head]) * fnma(set1(kept), found, v);
  Vec sum = zero();
  for (int64_t r = 0; r < s.key_dim; ++r) {
    const Vec before = a.fresh ? zero() : lanes.get(state + r * s.value_dim);
    const Vec x = fma(set1(k[r]), u, set1(kept) * before);
    lanes.put(state + r * s.value_dim, x);
    sum = fma(set1(q[r]), x, sum);
  }
  lanes.put(a.o + head * s.value_dim + column, sum);
}

template <class T>
void one_token(const DeltaCached<T>& a, int64_t head, const Space& space) {
  const DeltaShape& s = a.problem.shape;
  const Chunk chunk{.token = 0, .rows = 1};
  load_unit_rows(a.problem, a.k, chunk, head / delta_group(s), 1.0F, nullptr, space.k);
  load_unit_rows(a.problem, a.q, chunk, head / delta_group(s), query_factor(s), nullptr, space.q);
  alignas(64) float kept[Vec::kWidth];
  store(kept, decay(set1(a.g[head])));
  for_lanes(s.value_dim,
            [&](int64_t c, auto lanes) { visit_columns(a, head, c, lanes, kept[0], space.k, space.q); });
}

template <class T>
void cached(const DeltaCached<T>& a) {
  const DeltaShape& s = a.problem.shape;
  const auto workers = static_cast<int>(delta_workers(s.heads, s, a.threads));
#pragma omp parallel num_threads(workers)
  {
    const Space space =
        space_of(s, static_cast<float*>(a.scratch) + omp_get_thread_num() * delta_forward_floats(s));
#pragma omp for schedule(dynamic, 1)
    for (int64_t head = 0; head < s.heads; ++head)
      if (a.live == 1)
        one_token(a, head, space);
      else
        many_tokens(a, head, space);
  }
}

}  // namespace

void delta_forward(const DeltaForward<float>& a) { forward(a); }
void delta_forward(const DeltaForward<uint16_t>& a) { forward(a); }
void delta_cached(const DeltaCached<float>& a) { cached(a); }
void delta_cached(const DeltaCached<uint16_t>& a) { cached(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
