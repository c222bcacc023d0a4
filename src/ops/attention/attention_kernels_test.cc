#include "ops/attention/attention_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "ops/attention/attention_bias.h"
#include "ops/kernel_test_util.h"
#include "ops/philox.h"

namespace plimsoll {
namespace {

using kernel_test::from_double;
using kernel_test::Guarded;
using kernel_test::isas_here;
using kernel_test::random_values;
using kernel_test::to_double;
using Doubles = std::vector<double>;

struct Case {
  std::vector<int32_t> lengths;
  int64_t padding = 3;
  int64_t heads = 2, kv_heads = 1, head_dim = 16, window = 0;
  int threads = 2;
  bool causal = true;
  std::vector<int32_t> key_lengths = {};  // none: those of the queries
  int64_t buckets = 0, max_distance = 128;
  double dropout = 0;
  std::vector<int32_t> parents = {};  // none: sequences are no trees

  [[nodiscard]] static std::vector<int32_t> starts_of(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> s{0};
    for (const int32_t n : lengths) s.push_back(s.back() + n);
    return s;
  }
  [[nodiscard]] std::vector<int32_t> starts() const { return starts_of(lengths); }
  [[nodiscard]] std::vector<int32_t> key_starts() const {
    return starts_of(key_lengths.empty() ? lengths : key_lengths);
  }
  [[nodiscard]] int64_t tokens() const { return starts().back() + padding; }
  [[nodiscard]] int64_t key_tokens() const { return key_starts().back() + padding; }
  [[nodiscard]] AttentionProblem problem() const {
    return {.shape = {.length = *std::max_element(lengths.begin(), lengths.end()),
                      .heads = heads,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim,
                      .causal = causal,
                      .buckets = buckets,
                      .max_distance = max_distance,
                      .sequences = static_cast<int64_t>(lengths.size()),
                      .tree_tokens = parents.empty() ? 0 : tokens(),
                      .bias_trains = buckets > 0},
            .tokens = tokens(),
            .window = window,
            .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
            .key_tokens = key_tokens()};
  }
};

// Plain attention in double. One sequence and query head at a time, probabilities in full.
struct Reference {
  Case c;
  Doubles q, k, v, table;

  // The place of one sequence: its first token, first key, keys.
  struct Place {
    int64_t start, key_start, keys;
  };
  [[nodiscard]] int64_t bucket(const Place& at, int64_t token, int64_t key) const {
    return attention_bucket(c.problem().shape, key - at.key_start - (token - at.start));
  }
  [[nodiscard]] double kept(const Place& at, int64_t token, int64_t head, int64_t key) const {
    if (c.dropout == 0) return 1.0;
    const PhiloxStream stream = philox_stream(kSeed, kScope, position_of(token), sample_of(token), kStep);
    const double uniform = philox_bits32(stream, (head << 23) + key - at.key_start) * 0x1p-32;
    return uniform < c.dropout ? 0.0 : 1 / (1 - c.dropout);
  }
  static constexpr uint64_t kSeed = 5, kScope = 77;
  static constexpr uint32_t kStep = 4;
  static uint32_t position_of(int64_t token) { return static_cast<uint32_t>(token % 50); }
  static uint32_t sample_of(int64_t token) { return static_cast<uint32_t>(token / 50 + 3); }

  // Probabilities of the query at `token` over its sequence's keys; also the logarithm of the denominator.
  [[nodiscard]] Doubles probabilities(const Place& at_sequence, int64_t token, int64_t head,
                                      double* lse) const {
    const int64_t d = c.head_dim;
    const int64_t kv = head / (c.heads / c.kv_heads);
    const int64_t query = token - at_sequence.start;
    Doubles p(at(at_sequence.keys), 0.0);
    double sum = 0;
    for (int64_t j = 0; j < at_sequence.keys; ++j) {
      if (c.causal && (j > query || (c.window > 0 && query - j >= c.window))) continue;
      const int64_t key = at_sequence.key_start + j;
      double logit = 0;
      for (int64_t x = 0; x < d; ++x)
        logit += q[at((token * c.heads + head) * d + x)] * k[at((key * c.kv_heads + kv) * d + x)];
      logit *= static_cast<double>(c.problem().scale);
      if (c.buckets > 0) logit += table[at(bucket(at_sequence, token, key) * c.heads + head)];
      p[at(j)] = std::exp(logit);
      sum += p[at(j)];
    }
    for (double& x : p) x /= sum;
    *lse = std::log(sum);
    return p;
  }

  struct Forward {
    Doubles o, lse;
  };
  [[nodiscard]] Forward forward() const {
    Forward out{Doubles(q.size()), Doubles(at(c.tokens() * c.heads))};
    for_each_query([&](const Place& place, int64_t token, int64_t head) {
      const Doubles p = probabilities(place, token, head, &out.lse[at(token * c.heads + head)]);
      for (int64_t j = 0; j < place.keys; ++j)
        for (int64_t x = 0; x < c.head_dim; ++x)
          out.o[q_at(token, head, x)] += p[at(j)] * kept(place, token, head, place.key_start + j) *
                                         v[kv_at(place.key_start + j, head, x)];
    });
    return out;
  }

  struct Backward {
    Doubles d_q, d_k, d_v, d_table;
  };
  [[nodiscard]] Backward backward(const Doubles& d_o) const {
    Backward out{Doubles(q.size()), Doubles(k.size()), Doubles(v.size()), Doubles(table.size())};
    for_each_query([&](const Place& place, int64_t token, int64_t head) {
      double lse = 0;
      const Doubles p = probabilities(place, token, head, &lse);
      Doubles dp(p.size());
      double mean = 0;
      for (int64_t j = 0; j < place.keys; ++j) {
        const int64_t key = place.key_start + j;
        const double factor = kept(place, token, head, key);
        for (int64_t x = 0; x < c.head_dim; ++x) {
          dp[at(j)] += factor * d_o[q_at(token, head, x)] * v[kv_at(key, head, x)];
          out.d_v[kv_at(key, head, x)] += factor * p[at(j)] * d_o[q_at(token, head, x)];
        }
        mean += p[at(j)] * dp[at(j)];
      }
      for (int64_t j = 0; j < place.keys; ++j) {
        const int64_t key = place.key_start + j;
        const double d_logit = p[at(j)] * (dp[at(j)] - mean);
        const double ds = static_cast<double>(c.problem().scale) * d_logit;
        if (c.buckets > 0) out.d_table[at(bucket(place, token, key) * c.heads + head)] += d_logit;
        for (int64_t x = 0; x < c.head_dim; ++x) {
          out.d_q[q_at(token, head, x)] += ds * k[kv_at(key, head, x)];
          out.d_k[kv_at(key, head, x)] += ds * q[q_at(token, head, x)];
        }
      }
    });
    return out;
  }

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  [[nodiscard]] size_t q_at(int64_t token, int64_t head, int64_t x) const {
    return at((token * c.heads + head) * c.head_dim + x);
  }
  [[nodiscard]] size_t kv_at(int64_t token, int64_t head, int64_t x) const {
    return at((token * c.kv_heads + head / (c.heads / c.kv_heads)) * c.head_dim + x);
  }
  void for_each_query(const std::function<void(const Place&, int64_t, int64_t)>& visit) const {
    const auto starts = c.starts();
    const auto keys = c.key_starts();
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      for (int64_t t = starts[s]; keys[s] < keys[s + 1] && t < starts[s + 1]; ++t)
        for (int64_t h = 0; h < c.heads; ++h) visit({starts[s], keys[s], keys[s + 1] - keys[s]}, t, h);
  }
};

template <class T>
Doubles widen(const Guarded<T>& x) {
  Doubles out;
  for (int64_t i = 0; i < x.size(); ++i) out.push_back(to_double(x[i]));
  return out;
}

template <class T>
void run_forward(Isa isa, const AttentionForward<T>& a) {
  PLIMSOLL_RUN_KERNEL(isa, attention_forward, a);
}
template <class T>
void run_backward(Isa isa, const AttentionBackward<T>& a) {
  PLIMSOLL_RUN_KERNEL(isa, attention_backward, a);
}
template <class T>
void run_cached(Isa isa, const AttentionCached<T>& a) {
  PLIMSOLL_RUN_KERNEL(isa, attention_cached, a);
}

// Inputs and outputs of a case; run() calls both kernels.
template <class T>
struct Trial {
  Case c;
  int64_t q_size, kv_size;
  Guarded<T> q, k, v, d_o, o, d_q, d_k, d_v, table;
  Guarded<float> lse, d_table;
  std::vector<int32_t> samples, positions;

  explicit Trial(const Case& which)
      : c(which),
        q_size(c.tokens() * c.heads * c.head_dim),
        kv_size(c.key_tokens() * c.kv_heads * c.head_dim),
        q(random_values<T>(q_size, 1, 1.5)),
        k(random_values<T>(kv_size, 2, 1.5)),
        v(random_values<T>(kv_size, 3)),
        d_o(random_values<T>(q_size, 4)),
        o(q_size),
        d_q(q_size),
        d_k(kv_size),
        d_v(kv_size),
        table(random_values<T>(c.buckets * c.heads, 5)),
        lse(c.tokens() * c.heads),
        d_table(c.buckets * c.heads) {
    for (int64_t t = 0; t < c.tokens(); ++t) {
      samples.push_back(static_cast<int32_t>(Reference::sample_of(t)));
      positions.push_back(static_cast<int32_t>(Reference::position_of(t)));
    }
  }

  [[nodiscard]] Reference reference() const { return {c, widen(q), widen(k), widen(v), widen(table)}; }
  [[nodiscard]] AttentionProblem problem() const {
    AttentionProblem problem = c.problem();
    problem.dropout = {c.dropout,        samples.data(),    positions.data(),
                       Reference::kSeed, Reference::kScope, Reference::kStep};
    return problem;
  }

  void run(Isa isa) {
    const AttentionProblem problem = this->problem();
    const auto starts = c.starts();
    const auto key_starts = c.key_starts();
    const auto count = static_cast<int64_t>(c.lengths.size());
    const SequenceTable table_of_queries{starts.data(), count,
                                         c.parents.empty() ? nullptr : c.parents.data()};
    const SequenceTable keys{c.key_lengths.empty() ? nullptr : key_starts.data(), count};
    const T* const biases = c.buckets > 0 ? table.data() : nullptr;
    Guarded<unsigned char> forward_scratch(attention_forward_scratch_bytes(problem.shape, c.threads));
    Guarded<unsigned char> backward_scratch(attention_backward_scratch_bytes(problem.shape, c.threads));
    run_forward<T>(isa, {problem, table_of_queries, q.data(), k.data(), v.data(), o.data(), lse.data(),
                         forward_scratch.data(), c.threads, keys, biases});
    run_backward<T>(isa, {problem, table_of_queries, q.data(), k.data(), v.data(), o.data(), lse.data(),
                          d_o.data(), d_q.data(), d_k.data(), d_v.data(), backward_scratch.data(), c.threads,
                          keys, biases, c.buckets > 0 ? d_table.data() : nullptr});
    EXPECT_TRUE(forward_scratch.intact() && backward_scratch.intact());
    EXPECT_TRUE(o.intact() && lse.intact() && d_q.intact() && d_k.intact() && d_v.intact() &&
                d_table.intact());
  }
};

// Largest error relative to the largest expected value, or to 1 (the size of the inputs) where all are
// smaller: the gradients of a query that sees one key only are zero.
template <class T>
double error_of(const Guarded<T>& got, const Doubles& want) {
  double error = 0;
  double scale = 1.0;
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(to_double(got[static_cast<int64_t>(i)]) - want[i]));
    scale = std::max(scale, std::abs(want[i]));
  }
  return error / scale;
}

template <class T>
void expect_matches_reference(const Case& c) {
  // f32: sums of a few hundred products. bf16: one rounding of a result is 2^-9; the backward also reads an o
  // that was rounded, which enters d_q and d_k through rowsum(o * d_o).
  const double tolerance = sizeof(T) == 4 ? 5e-6 : 1e-2;
  for (const Isa isa : isas_here()) {
    Trial<T> r(c);
    r.run(isa);
    const Reference reference = r.reference();
    const auto forward = reference.forward();
    const auto backward = reference.backward(widen(r.d_o));
    SCOPED_TRACE(std::string(to_string(isa)) + " D " + std::to_string(c.head_dim) + " heads " +
                 std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " first length " +
                 std::to_string(c.lengths[0]) + " window " + std::to_string(c.window));
    EXPECT_LT(error_of(r.o, forward.o), tolerance);
    EXPECT_LT(error_of(r.lse, forward.lse), 2e-6);
    EXPECT_LT(error_of(r.d_q, backward.d_q), tolerance);
    EXPECT_LT(error_of(r.d_k, backward.d_k), tolerance);
    EXPECT_LT(error_of(r.d_v, backward.d_v), tolerance);
    EXPECT_LT(error_of(r.d_table, backward.d_table), tolerance);
  }
}

TEST(AttentionKernels, match_the_reference_at_odd_lengths) {
  for (const int32_t length : {1, 2, 17, 63, 65, 130, 257, 330}) {
    expect_matches_reference<float>({.lengths = {length}, .heads = 2, .kv_heads = 1});
    expect_matches_reference<uint16_t>({.lengths = {length}, .heads = 2, .kv_heads = 1});
  }
}

TEST(AttentionKernels, match_the_reference_for_several_sequences_and_group_sizes) {
  for (const int64_t group : {1, 2, 7}) {
    expect_matches_reference<float>({.lengths = {5, 70, 0, 1, 33}, .heads = 2 * group, .kv_heads = 2});
    expect_matches_reference<uint16_t>(
        {.lengths = {5, 70, 0, 1, 33}, .heads = 3 * group, .kv_heads = 3, .head_dim = 8});
  }
}

TEST(AttentionKernels, match_the_reference_for_every_kind_of_head_size) {
  for (const int64_t dim : {8, 24, 40, 64, 80, 128, 256})
    expect_matches_reference<uint16_t>({.lengths = {66, 3}, .heads = 2, .kv_heads = 1, .head_dim = dim});
}

TEST(AttentionKernels, match_the_reference_with_a_sliding_window) {
  for (const int64_t window : {1, 5, 64, 100, 500})
    expect_matches_reference<float>({.lengths = {150, 20, 290}, .heads = 4, .kv_heads = 2, .window = window});
}

TEST(AttentionKernels, match_the_reference_for_any_number_of_threads) {
  for (const int threads : {1, 3, 4, 8})
    expect_matches_reference<float>(
        {.lengths = {200, 70}, .heads = 3, .kv_heads = 3, .head_dim = 8, .threads = threads});
}

TEST(AttentionKernels, match_the_reference_for_queries_that_see_both_sides) {
  for (const int32_t length : {1, 17, 63, 65, 300}) {
    expect_matches_reference<float>({.lengths = {length, 40}, .causal = false});
    expect_matches_reference<uint16_t>({.lengths = {length, 40}, .heads = 6, .kv_heads = 2, .causal = false});
  }
}

TEST(AttentionKernels, match_the_reference_with_a_bias) {
  for (const bool causal : {true, false})
    for (const auto& [length, threads] :
         std::vector<std::pair<int32_t, int>>{{1, 2}, {65, 1}, {65, 8}, {130, 3}}) {
      const Case c{.lengths = {length, 0, 40},
                   .heads = 6,
                   .kv_heads = 3,
                   .threads = threads,
                   .causal = causal,
                   .buckets = 32};
      expect_matches_reference<float>(c);
      expect_matches_reference<uint16_t>(c);
    }
}

TEST(AttentionKernels, match_the_reference_over_keys_of_another_axis) {
  for (const int threads : {1, 2, 3})
    for (const auto& [queries, keys] : std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>>{
             {{1}, {1}}, {{5, 70, 3}, {200, 1, 65}}, {{130, 0, 20}, {64, 30, 300}}, {{20, 65}, {0, 7}}}) {
      const Case c{.lengths = queries,
                   .heads = 4,
                   .kv_heads = 2,
                   .threads = threads,
                   .causal = false,
                   .key_lengths = keys};
      expect_matches_reference<float>(c);
      expect_matches_reference<uint16_t>(c);
    }
}

TEST(AttentionKernels, match_the_reference_with_dropout) {
  for (const int32_t length : {17, 65, 130}) {
    expect_matches_reference<float>({.lengths = {length, 30}, .heads = 4, .kv_heads = 2, .dropout = 0.3});
    expect_matches_reference<uint16_t>(
        {.lengths = {length, 30}, .heads = 3, .kv_heads = 3, .causal = false, .buckets = 32, .dropout = 0.1});
    expect_matches_reference<float>(
        {.lengths = {length, 30}, .causal = false, .key_lengths = {70, length}, .dropout = 0.5});
  }
}

// Over many rows, since a probability that is kept grows by what the dropped ones lose.
TEST(AttentionKernels, dropout_keeps_the_mean) {
  for (const Isa isa : isas_here()) {
    Trial<float> r(
        {.lengths = {200}, .padding = 0, .heads = 4, .kv_heads = 4, .causal = false, .dropout = 0.25});
    for (int64_t i = 0; i < r.kv_size; ++i) r.v[i] = 1.0F;
    r.run(isa);
    double sum = 0;
    int64_t changed = 0;
    for (int64_t i = 0; i < r.q_size; ++i) {
      sum += static_cast<double>(r.o[i]);
      changed += std::abs(r.o[i] - 1.0F) > 1e-3F ? 1 : 0;
    }
    EXPECT_NEAR(sum / static_cast<double>(r.q_size), 1.0, 0.02);
    EXPECT_GT(changed, r.q_size / 2);
  }
}

TEST(AttentionKernels, buckets_are_those_of_transformers) {
  // First distance of each bucket, from T5Attention._relative_position_bucket of transformers 5.23.
  const auto expect_runs = [](const AttentionShape& shape, const std::vector<std::pair<int, int>>& runs) {
    for (int64_t distance = -200; distance <= 200; ++distance) {
      int want = 0;
      for (const auto& [first, bucket] : runs)
        if (distance >= first) want = bucket;
      EXPECT_EQ(attention_bucket(shape, distance), want) << distance;
    }
  };
  AttentionShape shape{.length = 200,
                       .heads = 1,
                       .kv_heads = 1,
                       .head_dim = 8,
                       .causal = false,
                       .buckets = 32,
                       .max_distance = 128};
  expect_runs(shape, {{-200, 15}, {-90, 14}, {-63, 13}, {-45, 12}, {-31, 11}, {-22, 10}, {-15, 9}, {-11, 8},
                      {-7, 7},    {-6, 6},   {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},  {0, 0},
                      {1, 17},    {2, 18},   {3, 19},   {4, 20},   {5, 21},   {6, 22},   {7, 23},  {8, 24},
                      {12, 25},   {16, 26},  {23, 27},  {32, 28},  {46, 29},  {64, 30},  {91, 31}});
  shape.causal = true;
  expect_runs(shape,
              {{-200, 31}, {-112, 30}, {-98, 29}, {-86, 28}, {-76, 27}, {-66, 26}, {-58, 25}, {-51, 24},
               {-45, 23},  {-39, 22},  {-34, 21}, {-30, 20}, {-26, 19}, {-23, 18}, {-20, 17}, {-18, 16},
               {-15, 15},  {-14, 14},  {-13, 13}, {-12, 12}, {-11, 11}, {-10, 10}, {-9, 9},   {-8, 8},
               {-7, 7},    {-6, 6},    {-5, 5},   {-4, 4},   {-3, 3},   {-2, 2},   {-1, 1},   {0, 0}});
  shape.buckets = 8;
  shape.max_distance = 20;
  expect_runs(shape, {{-200, 7}, {-13, 6}, {-8, 5}, {-5, 4}, {-3, 3}, {-2, 2}, {-1, 1}, {0, 0}});
}

TEST(AttentionKernels, reference_gradient_agrees_with_finite_differences) {
  const Case c{.lengths = {4, 6},
               .padding = 1,
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 8,
               .window = 3,
               .buckets = 4,
               .max_distance = 3,
               .dropout = 0.2};
  const Trial<float> r(c);
  Reference reference = r.reference();
  const Doubles d_o = widen(r.d_o);
  const auto loss = [&] {
    const Doubles o = reference.forward().o;
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
    return sum;
  };
  const auto gradient = reference.backward(d_o);
  const auto check = [&](Doubles& input, const Doubles& expected) {
    for (size_t i = 0; i < input.size(); i += 5) {
      const double kept = input[i];
      constexpr double kStep = 1e-5;
      input[i] = kept + kStep;
      const double above = loss();
      input[i] = kept - kStep;
      const double below = loss();
      input[i] = kept;
      EXPECT_NEAR((above - below) / (2 * kStep), expected[i], 1e-7);
    }
  };
  check(reference.q, gradient.d_q);
  check(reference.k, gradient.d_k);
  check(reference.v, gradient.d_v);
  check(reference.table, gradient.d_table);
}

TEST(AttentionKernels, padding_rows_are_zero) {
  for (const Isa isa : isas_here()) {
    Trial<uint16_t> r({.lengths = {9, 4}, .padding = 5, .heads = 4, .kv_heads = 2});
    r.run(isa);
    const int64_t live = 13;
    for (int64_t i = live * 4 * 16; i < r.q_size; ++i) ASSERT_TRUE(r.o[i] == 0 && r.d_q[i] == 0);
    for (int64_t i = live * 2 * 16; i < r.kv_size; ++i) ASSERT_TRUE(r.d_k[i] == 0 && r.d_v[i] == 0);
    for (int64_t i = live * 4; i < r.lse.size(); ++i) ASSERT_EQ(r.lse[i], 0.0F);
  }
}

// Nor does what dropout draws, which is keyed by sample and position: batches may be split anywhere.
TEST(AttentionKernels, bits_of_a_sequence_do_not_depend_on_the_batch_around_it) {
  constexpr int32_t kLength = 140;
  const Case plain{.lengths = {kLength}, .padding = 0, .heads = 6, .kv_heads = 2};
  Case with_all = plain;
  with_all.causal = false;
  with_all.buckets = 32;
  with_all.dropout = 0.2;
  for (const Isa isa : isas_here())
    for (const Case& which : {plain, with_all})
      for (const int threads : {2, 4}) {
        Case c = which;
        c.threads = threads;
        Trial<uint16_t> alone(c);
        c.lengths = {31, kLength, 77, 200};
        c.padding = 2;
        Trial<uint16_t> among(c);
        const int64_t q_offset = 31 * 6 * 16;
        const int64_t kv_offset = 31 * 2 * 16;
        std::copy_n(alone.q.data(), alone.q_size, among.q.data() + q_offset);
        std::copy_n(alone.d_o.data(), alone.q_size, among.d_o.data() + q_offset);
        std::copy_n(alone.k.data(), alone.kv_size, among.k.data() + kv_offset);
        std::copy_n(alone.v.data(), alone.kv_size, among.v.data() + kv_offset);
        std::copy_n(alone.samples.begin(), kLength, among.samples.begin() + 31);
        std::copy_n(alone.positions.begin(), kLength, among.positions.begin() + 31);
        alone.run(isa);
        among.run(isa);
        const auto equal = [](const Guarded<uint16_t>& a, const Guarded<uint16_t>& b, int64_t offset) {
          return std::equal(a.data(), a.data() + a.size(), b.data() + offset);
        };
        EXPECT_TRUE(equal(alone.o, among.o, q_offset));
        EXPECT_TRUE(equal(alone.d_q, among.d_q, q_offset));
        EXPECT_TRUE(equal(alone.d_k, among.d_k, kv_offset));
        EXPECT_TRUE(equal(alone.d_v, among.d_v, kv_offset));
      }
}

// A row of 190 tokens that continues behind 100 and 20 which others share, one of them longer than a block of
// keys.
template <class T>
void expect_bits_of_the_path(Isa isa, int64_t window) {
  const Case path{.lengths = {190}, .padding = 0, .heads = 6, .kv_heads = 2, .window = window};
  Case tree = path;
  tree.lengths = {100, 90, 20, 5, 70, 33};
  tree.parents = {-1, 0, 0, 2, 2, -1};
  Trial<T> alone(path), among(tree);
  const int64_t q = 6 * 16, kv = 2 * 16;
  const auto copy = [](const Guarded<T>& from, Guarded<T>& to, int64_t width) {
    std::copy_n(from.data(), 100 * width, to.data());
    std::copy_n(from.data() + 100 * width, 20 * width, to.data() + 190 * width);
    std::copy_n(from.data() + 120 * width, 70 * width, to.data() + 215 * width);
  };
  copy(alone.q, among.q, q);
  copy(alone.k, among.k, kv);
  copy(alone.v, among.v, kv);
  alone.run(isa);
  among.run(isa);
  EXPECT_TRUE(std::equal(alone.o.data() + 120 * q, alone.o.data() + 190 * q, among.o.data() + 215 * q));
  EXPECT_TRUE(std::equal(alone.lse.data() + 120 * 6, alone.lse.data() + 190 * 6, among.lse.data() + 215 * 6));
}

TEST(AttentionKernels, bits_of_a_path_are_those_of_the_row_alone) {
  for (const Isa isa : isas_here())
    for (const int64_t window : {0, 1, 7, 64, 80, 150, 500}) {
      SCOPED_TRACE(std::string(to_string(isa)) + " window " + std::to_string(window));
      expect_bits_of_the_path<float>(isa, window);
      expect_bits_of_the_path<uint16_t>(isa, window);
    }
}

// Adds to the gradients of a tree's tokens those of one row, whose tokens are `tokens` of the tree. Its
// gradient comes from the tokens behind the first `shared` ones.
void add_row_apart(Isa isa, const Trial<float>& among, const std::vector<int64_t>& tokens, int64_t shared,
                   Reference::Backward& sums) {
  Case alone = among.c;
  alone.lengths = {static_cast<int32_t>(tokens.size())};
  alone.parents.clear();
  Trial<float> row(alone);
  const int64_t q = alone.heads * alone.head_dim, kv = alone.kv_heads * alone.head_dim;
  const auto each = [&](int64_t width, const auto& visit) {
    for (int64_t t = 0; t < std::ssize(tokens); ++t)
      for (int64_t x = 0; x < width; ++x) visit(t * width + x, tokens[Reference::at(t)] * width + x);
  };
  each(q, [&](int64_t to, int64_t from) {
    row.q[to] = among.q[from];
    row.d_o[to] = to < shared * q ? 0.0F : among.d_o[from];
  });
  each(kv, [&](int64_t to, int64_t from) {
    row.k[to] = among.k[from];
    row.v[to] = among.v[from];
  });
  row.run(isa);
  each(q, [&](int64_t from, int64_t to) { sums.d_q[Reference::at(to)] += to_double(row.d_q[from]); });
  each(kv, [&](int64_t from, int64_t to) {
    sums.d_k[Reference::at(to)] += to_double(row.d_k[from]);
    sums.d_v[Reference::at(to)] += to_double(row.d_v[from]);
  });
}

TEST(AttentionKernels, gradients_of_trees_are_the_sums_of_rows_apart) {
  const std::vector<std::vector<size_t>> rows = {{0, 1}, {0, 2, 3}, {0, 2, 4}};  // as segments
  for (const Isa isa : isas_here())
    for (const int64_t window : {0, 1, 7, 64, 80, 150, 500}) {
      SCOPED_TRACE(std::string(to_string(isa)) + " window " + std::to_string(window));
      Trial<float> among({.lengths = {100, 90, 20, 130, 70},
                          .padding = 0,
                          .heads = 6,
                          .kv_heads = 2,
                          .window = window,
                          .parents = {-1, 0, 0, 2, 2}});
      among.run(isa);
      const Doubles none_q(Reference::at(among.q_size)), none_k(Reference::at(among.kv_size));
      Reference::Backward sums{none_q, none_k, none_k, {}};
      std::vector<bool> met(rows.size() + 2);
      for (const auto& segments : rows) {
        std::vector<int64_t> tokens;
        int64_t shared = 0;  // whose gradients came with a row before
        for (const size_t s : segments) {
          const auto starts = among.c.starts();
          for (int64_t t = starts[s]; t < starts[s + 1]; ++t) tokens.push_back(t);
          if (met[s]) shared = std::ssize(tokens);
          met[s] = true;
        }
        add_row_apart(isa, among, tokens, shared, sums);
      }
      EXPECT_LT(error_of(among.d_q, sums.d_q), 1e-5);
      EXPECT_LT(error_of(among.d_k, sums.d_k), 1e-5);
      EXPECT_LT(error_of(among.d_v, sums.d_v), 1e-5);
    }
}

TEST(AttentionKernels, gradients_of_trees_repeat_their_bits_and_are_those_of_any_number_of_threads) {
  for (const Isa isa : isas_here()) {
    Case c{.lengths = {300, 90, 20, 5, 70, 33}, .heads = 8, .kv_heads = 8, .parents = {-1, 0, 0, 2, 2, -1}};
    c.threads = 1;  // as many pairs of heads as threads ask for: no part is split
    Trial<uint16_t> one(c);
    c.threads = 2;
    Trial<uint16_t> two(c), again(c);
    for (Trial<uint16_t>* trial : {&one, &two, &again}) trial->run(isa);
    EXPECT_TRUE(two.d_q == again.d_q && two.d_k == again.d_k && two.d_v == again.d_v);
    EXPECT_TRUE(one.d_q == two.d_q && one.d_k == two.d_k && one.d_v == two.d_v);
  }
}

TEST(AttentionKernels, bits_repeat_from_run_to_run) {
  for (const Isa isa : isas_here()) {
    const Case c{
        .lengths = {90, 150, 10}, .heads = 4, .kv_heads = 1, .threads = 4, .buckets = 32, .dropout = 0.1};
    Trial<uint16_t> one(c);
    Trial<uint16_t> two(c);
    one.run(isa);
    two.run(isa);
    EXPECT_TRUE(one.o == two.o && one.d_q == two.d_q && one.d_k == two.d_k && one.d_v == two.d_v);
    EXPECT_TRUE(one.d_table == two.d_table);
  }
}

TEST(AttentionKernels, cached_forward_equals_the_end_of_the_whole_forward) {
  constexpr int64_t kLength = 135;
  for (const Isa isa : isas_here())
    for (const int64_t window : {0, 40})
      for (const int64_t queries : {1, 7, 64, 135}) {
        Trial<float> whole(
            {.lengths = {kLength}, .padding = 0, .heads = 14, .kv_heads = 2, .window = window});
        whole.run(isa);
        AttentionProblem problem = whole.c.problem();
        problem.tokens = queries;
        const int64_t offset = (kLength - queries) * 14 * 16;
        Guarded<float> o(queries * 14 * 16);
        Guarded<unsigned char> scratch(attention_forward_scratch_bytes(problem.shape, 2));
        run_cached<float>(isa, {problem, whole.q.data() + offset, whole.k.data(), whole.v.data(), kLength,
                                o.data(), scratch.data(), 2});
        EXPECT_TRUE(o.intact() && scratch.intact());
        for (int64_t i = 0; i < o.size(); ++i) ASSERT_NEAR(o[i], whole.o[offset + i], 2e-6F);
      }
}

}  // namespace
}  // namespace plimsoll
