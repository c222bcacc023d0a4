// Backward of the gated delta rule. A thread takes a key head of a sequence, or of a tree, with all of its
// value heads. The states are made again: first those at the start of every group of chunks; then, group by
// group from the last, the states before each chunk, and chunk by chunk from the last the gradients.
#include <omp.h>

#include "ops/delta/delta_rule_blocks.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// A worker's buffers.
struct ChunkRows {
  float *k, *k_columns, *k_to_end, *q, *made, *made_rows;             // [rows][keys]
  float *d_o, *d_o_columns, *u_columns, *d_r, *d_r_columns, *values;  // [rows][values]
};
struct ChunkSquares {
  float *of_keys, *of_queries, *decays, *d_queries, *d_keys;  // [rows][kDeltaChunk]
  Triangle triangle;
};
struct GroupRows {
  float *d_q_rows, *d_k_rows;  // [kDeltaGroup][rows][keys]
  float *u, *missed;           // [kDeltaGroup][rows][values]
};
struct States {
  float* running;  // a state
  float* states;   // [kDeltaGroup]: before a group's chunks
  // By value head of the key head: states before groups, the gradient of the state behind the chunk at hand,
  // states behind segments that fork, and their gradients as far as they are summed up.
  float *starts, *d_state, *forks, *d_forks;
};
struct Space : ChunkRows, ChunkSquares, GroupRows, States {};

Space space_of(const DeltaShape& s, float* floats) {
  const int64_t keys = kDeltaChunk * delta_keys(s), values = kDeltaChunk * delta_values(s);
  constexpr int64_t kSquare = kDeltaChunk * kDeltaChunk;
  const int64_t states = delta_group(s) * delta_state(s);
  Floats f{floats};
  Space to{};
  f.take_all(keys, {&to.k, &to.k_columns, &to.k_to_end, &to.q, &to.made, &to.made_rows});
  f.take_all(values, {&to.d_o, &to.d_o_columns, &to.u_columns, &to.d_r, &to.d_r_columns, &to.values});
  f.take_all(kSquare,
             {&to.of_keys, &to.of_queries, &to.decays, &to.d_queries, &to.d_keys, &to.triangle.minus});
  to.triangle.inverses = f.take(kDeltaChunk * kDeltaSub);
  f.take_all(kDeltaGroup * keys, {&to.d_q_rows, &to.d_k_rows});
  f.take_all(kDeltaGroup * values, {&to.u, &to.missed});
  to.running = f.take(delta_state(s));
  to.states = f.take(kDeltaGroup * delta_state(s));
  to.starts = f.take(delta_most_groups(s) * states);
  to.d_state = f.take(states);
  to.forks = f.take(s.forks * states);
  to.d_forks = f.take(s.forks * states);
  return to;
}

// The gradient of a row's g is the sum of what goes from before the row to it or behind it: by pairs of the
// chunk's rows, by the state before the chunk and rows from it on, by rows before it and the state behind the
// chunk, and by both states. Nothing is taken away again: where hardly anything is kept, it is small.
struct DecayGradients {
  alignas(64) float across[kDeltaChunk] = {};      // pairs, of each row
  alignas(64) float from_state[kDeltaChunk] = {};  // what a row takes of the state before
  alignas(64) float to_state[kDeltaChunk] = {};    // what it gives to the one behind
  float of_states = 0;
};

// A key head of a tree.
template <class T>
struct KeyHead {
  const DeltaBackward<T>& a;
  Space b;
  Tree tree;
  int64_t key_head;
  int64_t chunks = 0;
  const DeltaShape& s = a.problem.shape;
  int64_t keys = delta_keys(s), values = delta_values(s), state = delta_state(s);

  KeyHead(const DeltaBackward<T>& all, const Space& space, const Tree& which, int64_t head)
      : a(all), b(space), tree(which), key_head(head) {
    for (int64_t i = tree.begin; i < tree.end; ++i) chunks += chunks_of(a.sequences, i);
  }
  [[nodiscard]] Chunk chunk(int64_t i) const { return chunk_at(a.sequences, i, tree.begin); }
  [[nodiscard]] int64_t head(int64_t member) const { return key_head * delta_group(s) + member; }
  [[nodiscard]] float* start(int64_t group, int64_t member) const {
    return b.starts + (group * delta_group(s) + member) * state;
  }
  // The first fork's; the others' lie fork_stride() apart.
  [[nodiscard]] float* forks(int64_t member) const { return b.forks + member * state; }
  [[nodiscard]] float* d_forks(int64_t member) const { return b.d_forks + member * state; }
  [[nodiscard]] int64_t fork_stride() const { return delta_group(s) * state; }
  [[nodiscard]] float* rows_of(float* all, int64_t slot, int64_t width) const {
    return all + slot * kDeltaChunk * width;
  }

  void run() const;
  void walk(int64_t member, int64_t begin, int64_t end, bool keeps) const;
  DeltaStep load_step(const Chunk& chunk, int64_t member, Gates& gates) const;
  void chunk_backward(const Chunk& chunk, int64_t member, int64_t slot) const;
  void score_gradients(const Gates& gates, int64_t rows, float* d_beta, DecayGradients& d) const;
  void state_gradients(const Chunk& chunk, const DeltaStep& step, const float* before, const float* d_behind,
                       float* d_q, float* d_k, DecayGradients& d) const;
  void triangle_products(int64_t rows, float* d_q, float* d_k) const;
  void step_back(const Chunk& chunk, const Gates& gates, float* d_state) const;
  void hand_to_parent(int64_t segment, int64_t member) const;
  void write_row_gradients(const Chunk& chunk, const T* x, float factor, float* d, T* to) const;
};

// Makes what the step over a chunk reads, with k by rows and columns.
template <class T>
DeltaStep KeyHead<T>::load_step(const Chunk& chunk, int64_t member, Gates& gates) const {
  const int64_t rows = chunk.padded();
  load_gates(s, a.g, a.beta, chunk, head(member), gates);
  load_unit_rows(a.problem, a.k, chunk, key_head, 1.0F, nullptr, b.k);
  transpose(b.k, keys, rows, keys, b.k_columns, kDeltaChunk);
  lower_products(b.k, b.k_columns, rows, keys, b.of_keys);
  decays_between(gates, rows, b.decays);
  make_triangle(gates, b.of_keys, b.decays, rows, b.triangle);
  scale_rows(b.k, gates.to_end, rows, keys, b.k_to_end);
  return {&gates, b.k, b.k_to_end, b.triangle};
}

// Walks a value head's states through chunks `begin` to `end`. `keeps`: from what `running` holds, keeping
// the states before them and the steps' values; else from the tree's start, keeping the states before groups.
template <class T>
void KeyHead<T>::walk(int64_t member, int64_t begin, int64_t end, bool keeps) const {
  for (int64_t i = begin; i < end; ++i) {
    const Chunk at = chunk(i);
    const int64_t slot = keeps ? i - begin : 0;
    begin_state(s, a.sequences, at, forks(member), fork_stride(), b.running);
    if (!at.first && (keeps || i % kDeltaGroup == 0))
      copy(b.running, state, keeps ? b.states + slot * state : start(i / kDeltaGroup, member));
    if (!keeps && i + 1 == end) break;
    Gates gates;
    const DeltaStep step = load_step(at, member, gates);
    float* const u = rows_of(b.u, slot, values);
    load_values(s, a.v, at, head(member), u);
    values_of_step(s, step, at.padded(), at.first ? nullptr : b.running, b.values,
                   keeps ? rows_of(b.missed, slot, values) : nullptr, u);
    if (i + 1 == end || at.last) continue;
    advance(s, step, at.padded(), u, at.first, b.running);
    end_state(s, a.sequences, at, b.running, fork_stride(), forks(member));
  }
}

// From the gradients of both products of rows, d_queries and -d_keys (raw): the weights of k in d_q and of q
// in d_k to `d_queries`, those of k in d_k to `d_keys`; and what pairs of rows give to g and beta.
template <class T>
void KeyHead<T>::score_gradients(const Gates& gates, int64_t rows, float* d_beta, DecayGradients& d) const {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t end = i / kDeltaSub * kDeltaSub + kDeltaSub;
    for (int64_t j = i; j < end; ++j) b.d_keys[i * kDeltaChunk + j] = 0.0F;
    float* const pairs = b.of_queries + i * kDeltaChunk;
    Vec of_beta = zero();
    for (int64_t j = 0; j < end; j += Vec::kWidth) {
      const int64_t at = i * kDeltaChunk + j;
      const Vec between = load(b.decays + at), d_query = load(b.d_queries + at) * between;
      const Vec raw = load(b.d_keys + at), d_key = raw * between;
      store(pairs + j, fma(d_query, load(pairs + j), raw * load(b.triangle.minus + at)));
      of_beta = fnma(d_key, load(b.of_keys + at), of_beta);
      store(b.d_queries + at, d_query);
      store(b.d_keys + at, d_key * set1(-gates.beta[i]));
    }
    d_beta[i] = reduce_add(of_beta);
    float sum = 0;
    for (int64_t j = 0; j <= i; ++j) {
      d.across[j] += sum;
      sum += pairs[j];
    }
  }
}

// Adds to d_q, d_k and the gradients of decays what goes by way of the states before and behind the chunk.
template <class T>
void KeyHead<T>::state_gradients(const Chunk& chunk, const DeltaStep& step, const float* before,
                                 const float* d_behind, float* d_q, float* d_k, DecayGradients& d) const {
  const int64_t rows = chunk.padded();
  // made_rows [rows][keys] = x y^T of a state and rows by columns [values][kDeltaChunk].
  const auto times_state = [&](const float* x, const float* y_columns) {
    product(keys, rows, values, {x, values, 1}, y_columns, kDeltaChunk, b.made, kDeltaChunk, false);
    transpose(b.made, kDeltaChunk, keys, rows, b.made_rows, keys);
  };
  // Row i of `to` += factor * made_rows; returns that row's product with row i of x.
  const auto add_row = [&](int64_t i, const float* x, float factor, float* to) {
    const Vec f = set1(factor);
    Vec sum = zero();
    for (int64_t c = i * keys; c < (i + 1) * keys; c += Vec::kWidth) {
      const Vec made = f * load(b.made_rows + c);
      sum = fma(made, load(x + c), sum);
      store(to + c, load(to + c) + made);
    }
    return reduce_add(sum);
  };
  const Gates& gates = *step.gates;
  if (d_behind != nullptr) {
    times_state(d_behind, b.u_columns);
    for (int64_t i = 0; i < rows; ++i) d.to_state[i] = add_row(i, b.k, gates.to_end[i], d_k);
  }
  if (before == nullptr) return;
  if (d_behind != nullptr) d.of_states = gates.whole * dot(before, d_behind, state);
  times_state(before, b.d_o_columns);
  for (int64_t i = 0; i < rows; ++i) d.from_state[i] = add_row(i, b.q, gates.from_start[i], d_q);
  times_state(before, b.d_r_columns);
  for (int64_t i = 0; i < rows; ++i)
    d.from_state[i] += add_row(i, b.k, -gates.beta[i] * gates.from_start[i], d_k);
}

// Adds to d_q and d_k what goes by way of the chunk's own rows.
template <class T>
void KeyHead<T>::triangle_products(int64_t rows, float* d_q, float* d_k) const {
  for (int64_t first = 0; first < rows; first += kDeltaSub) {
    const int64_t row = first * kDeltaChunk, diagonal = row + first, at = first * keys;
    const int64_t up_to = first + kDeltaSub, behind = rows - first;
    product(kDeltaSub, keys, up_to, {b.d_queries + row, kDeltaChunk, 1}, b.k, keys, d_q + at, keys, true);
    product(kDeltaSub, keys, behind, {b.d_queries + diagonal, 1, kDeltaChunk}, b.q + at, keys, d_k + at, keys,
            true);
    product(kDeltaSub, keys, up_to, {b.d_keys + row, kDeltaChunk, 1}, b.k, keys, d_k + at, keys, true);
    product(kDeltaSub, keys, behind, {b.d_keys + diagonal, 1, kDeltaChunk}, b.k + at, keys, d_k + at, keys,
            true);
  }
}

// The gradient of the state before a chunk from that of the one behind it, in place.
template <class T>
void KeyHead<T>::step_back(const Chunk& chunk, const Gates& gates, float* d_state) const {
  const int64_t rows = chunk.padded();
  const Vec whole = set1(gates.whole);
  if (!chunk.last)
    for (int64_t c = 0; c < state; c += Vec::kWidth) store(d_state + c, whole * load(d_state + c));
  scale_rows(b.q, gates.from_start, rows, keys, b.made);
  product(keys, values, rows, {b.made, 1, keys}, b.d_o, values, d_state, values, !chunk.last);
  for (int64_t i = 0; i < rows; ++i) {
    const Vec f = set1(-gates.beta[i] * gates.from_start[i]);
    for (int64_t c = i * keys; c < (i + 1) * keys; c += Vec::kWidth) store(b.made + c, f * load(b.k + c));
  }
  product(keys, values, rows, {b.made, 1, keys}, b.d_r, values, d_state, values, true);
}

// The gradient at hand is of the state that a segment starts from: of its parent's last state all that
// continue it have a part, the last of them first.
template <class T>
void KeyHead<T>::hand_to_parent(int64_t segment, int64_t member) const {
  const int64_t parent = parent_of(a.sequences, segment);
  if (!plimsoll::forks(a.sequences, parent)) return;
  float* const d_state = b.d_state + member * state;
  float* const sum = d_forks(member) + fork_number(a.sequences, parent) * fork_stride();
  if (parent + 1 == segment)  // the last part; the parent's last chunk is next
    add(sum, state, d_state);
  else if (is_last_child(a.sequences, segment))
    copy(d_state, state, sum);
  else
    add(d_state, state, sum);
}

// All gradients of a chunk's rows for one value head; those of q and k are added up over the heads.
template <class T>
void KeyHead<T>::chunk_backward(const Chunk& chunk, int64_t member, int64_t slot) const {
  const int64_t rows = chunk.padded();
  const float* const before = chunk.first ? nullptr : b.states + slot * state;
  float* const d_state = b.d_state + member * state;
  const float* const d_behind = chunk.last ? nullptr : d_state;
  Gates gates;
  const DeltaStep step = load_step(chunk, member, gates);
  load_unit_rows(a.problem, a.q, chunk, key_head, query_factor(s), nullptr, b.q);
  lower_products(b.q, b.k_columns, rows, keys, b.of_queries);
  load_values(s, a.d_o, chunk, head(member), b.d_o);

  for (int64_t first = 0; first < rows; first += kDeltaSub) {
    const int64_t columns = first + kDeltaSub;
    for (int64_t i = first; i < columns; ++i)
      multiply(b.of_queries + i * kDeltaChunk, b.decays + i * kDeltaChunk, columns,
               b.d_queries + i * kDeltaChunk);
  }
  for (int64_t first = 0; first < rows; first += kDeltaSub)
    product(kDeltaSub, values, rows - first, {b.d_queries + first * kDeltaChunk + first, 1, kDeltaChunk},
            b.d_o + first * values, values, b.d_r + first * values, values, false);
  if (d_behind != nullptr)
    product(rows, values, keys, {b.k_to_end, keys, 1}, d_behind, values, b.d_r, values, true);
  solve_transposed(b.triangle, rows, values, b.values, b.d_r);

  transpose(b.d_o, values, rows, values, b.d_o_columns, kDeltaChunk);
  transpose(b.d_r, values, rows, values, b.d_r_columns, kDeltaChunk);
  transpose(rows_of(b.u, slot, values), values, rows, values, b.u_columns, kDeltaChunk);
  lower_products(b.d_o, b.u_columns, rows, values, b.d_queries);
  lower_products(b.d_r, b.u_columns, rows, values, b.d_keys);
  alignas(64) float d_beta[kDeltaChunk];
  DecayGradients decays;
  score_gradients(gates, rows, d_beta, decays);
  float* const d_q = rows_of(b.d_q_rows, slot, keys);
  float* const d_k = rows_of(b.d_k_rows, slot, keys);
  state_gradients(chunk, step, before, d_behind, d_q, d_k, decays);
  triangle_products(rows, d_q, d_k);

  const float* const missed = rows_of(b.missed, slot, values);
  float before_row = decays.of_states;
  for (int64_t i = 0; i < chunk.rows; ++i) {
    a.d_g[(chunk.token + i) * s.heads + head(member)] = before_row;
    before_row += decays.to_state[i];
  }
  float from_row = 0;
  for (int64_t i = chunk.rows - 1; i >= 0; --i) {
    const int64_t at = (chunk.token + i) * s.heads + head(member);
    from_row += decays.from_state[i];
    a.d_g[at] += decays.across[i] + from_row;
    a.d_beta[at] = d_beta[i] + dot(b.d_r + i * values, missed + i * values, values);
  }
  if (!chunk.first) step_back(chunk, gates, d_state);
  scale_rows(b.d_r, gates.beta, rows, values, b.values);
  store_values(s, b.values, chunk, head(member), a.d_v);
  if (chunk.begins && !chunk.first) hand_to_parent(chunk.segment, member);
}

// The gradient by rows from `d`, that by the rows of length 1 that were made of them.
template <class T>
void KeyHead<T>::write_row_gradients(const Chunk& chunk, const T* x, float factor, float* d, T* to) const {
  alignas(64) float inverse[kDeltaChunk];
  load_unit_rows(a.problem, x, chunk, key_head, 1.0F, inverse, b.made);
  for (int64_t i = 0; i < chunk.rows; ++i) {
    const float* const unit = b.made + i * keys;
    float* const row = d + i * keys;
    const Vec along = set1(dot(unit, row, keys));
    for (int64_t c = 0; c < keys; c += Vec::kWidth)
      store(row + c, fnma(along, load(unit + c), load(row + c)));
    narrow_row(row, to + ((chunk.token + i) * s.key_heads + key_head) * s.key_dim, s.key_dim,
               inverse[i] * factor);
  }
}

template <class T>
void KeyHead<T>::run() const {
  const int64_t groups = (chunks + kDeltaGroup - 1) / kDeltaGroup;
  for (int64_t member = 0; groups > 1 && member < delta_group(s); ++member)
    walk(member, 0, (groups - 1) * kDeltaGroup + 1, false);
  for (int64_t group = groups - 1; group >= 0; --group) {
    const int64_t begin = group * kDeltaGroup, end = smaller(begin + kDeltaGroup, chunks);
    clear(b.d_q_rows, kDeltaGroup * kDeltaChunk * keys);
    clear(b.d_k_rows, kDeltaGroup * kDeltaChunk * keys);
    for (int64_t member = 0; member < delta_group(s); ++member) {
      if (group > 0) copy(start(group, member), state, b.running);
      walk(member, begin, end, true);
      for (int64_t i = end - 1; i >= begin; --i) chunk_backward(chunk(i), member, i - begin);
    }
    for (int64_t i = begin; i < end; ++i) {
      write_row_gradients(chunk(i), a.q, query_factor(s), rows_of(b.d_q_rows, i - begin, keys), a.d_q);
      write_row_gradients(chunk(i), a.k, 1.0F, rows_of(b.d_k_rows, i - begin, keys), a.d_k);
    }
  }
}

template <class T>
void backward(const DeltaBackward<T>& a) {
  const DeltaShape& s = a.problem.shape;
  const int64_t tasks = count_trees(a.sequences) * s.key_heads;
  const auto workers = static_cast<int>(delta_workers(s.key_heads, s, a.threads));
#pragma omp parallel num_threads(workers)
  {
    const Space space =
        space_of(s, static_cast<float*>(a.scratch) + omp_get_thread_num() * delta_backward_floats(s));
    zero_padding(a.sequences, s.tokens, a.d_q, s.key_heads * s.key_dim);
    zero_padding(a.sequences, s.tokens, a.d_k, s.key_heads * s.key_dim);
    zero_padding(a.sequences, s.tokens, a.d_v, s.heads * s.value_dim);
    zero_padding(a.sequences, s.tokens, a.d_g, s.heads);
    zero_padding(a.sequences, s.tokens, a.d_beta, s.heads);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i)
      KeyHead<T>(a, space, tree_at(a.sequences, i / s.key_heads), i % s.key_heads).run();
  }
}

}  // namespace

void delta_backward(const DeltaBackward<float>& a) { backward(a); }
void delta_backward(const DeltaBackward<uint16_t>& a) { backward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
