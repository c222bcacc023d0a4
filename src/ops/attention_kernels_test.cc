#include "ops/attention_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "ops/kernel_test_util.h"

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

  [[nodiscard]] std::vector<int32_t> starts() const {
    std::vector<int32_t> s{0};
    for (const int32_t n : lengths) s.push_back(s.back() + n);
    return s;
  }
  [[nodiscard]] int64_t tokens() const { return starts().back() + padding; }
  [[nodiscard]] AttentionProblem problem() const {
    return {.shape = {.length = *std::max_element(lengths.begin(), lengths.end()),
                      .heads = heads,
                      .kv_heads = kv_heads,
                      .head_dim = head_dim},
            .tokens = tokens(),
            .window = window,
            .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  }
};

// Plain attention in double. One sequence and query head at a time, probabilities in full.
struct Reference {
  Case c;
  Doubles q, k, v;

  // Probabilities of the query at `token` over its sequence's keys [start, token]; also the logarithm of the
  // denominator.
  [[nodiscard]] Doubles probabilities(int64_t start, int64_t token, int64_t head, double* lse) const {
    const int64_t d = c.head_dim;
    const int64_t kv = head / (c.heads / c.kv_heads);
    Doubles p(static_cast<size_t>(token - start + 1), 0.0);
    double sum = 0;
    for (int64_t j = start; j <= token; ++j) {
      if (c.window > 0 && token - j >= c.window) continue;
      double logit = 0;
      for (int64_t x = 0; x < d; ++x)
        logit += q[at((token * c.heads + head) * d + x)] * k[at((j * c.kv_heads + kv) * d + x)];
      p[at(j - start)] = std::exp(logit * static_cast<double>(c.problem().scale));
      sum += p[at(j - start)];
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
    for_each_query([&](int64_t start, int64_t token, int64_t head) {
      const Doubles p = probabilities(start, token, head, &out.lse[at(token * c.heads + head)]);
      for (int64_t j = start; j <= token; ++j)
        for (int64_t x = 0; x < c.head_dim; ++x)
          out.o[q_at(token, head, x)] += p[at(j - start)] * v[kv_at(j, head, x)];
    });
    return out;
  }

  struct Backward {
    Doubles d_q, d_k, d_v;
  };
  [[nodiscard]] Backward backward(const Doubles& d_o) const {
    Backward out{Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
    for_each_query([&](int64_t start, int64_t token, int64_t head) {
      double lse = 0;
      const Doubles p = probabilities(start, token, head, &lse);
      Doubles dp(p.size());
      double mean = 0;
      for (int64_t j = start; j <= token; ++j) {
        for (int64_t x = 0; x < c.head_dim; ++x) {
          dp[at(j - start)] += d_o[q_at(token, head, x)] * v[kv_at(j, head, x)];
          out.d_v[kv_at(j, head, x)] += p[at(j - start)] * d_o[q_at(token, head, x)];
        }
        mean += p[at(j - start)] * dp[at(j - start)];
      }
      for (int64_t j = start; j <= token; ++j) {
        const double ds =
            static_cast<double>(c.problem().scale) * p[at(j - start)] * (dp[at(j - start)] - mean);
        for (int64_t x = 0; x < c.head_dim; ++x) {
          out.d_q[q_at(token, head, x)] += ds * k[kv_at(j, head, x)];
          out.d_k[kv_at(j, head, x)] += ds * q[q_at(token, head, x)];
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
  void for_each_query(const std::function<void(int64_t, int64_t, int64_t)>& visit) const {
    const auto starts = c.starts();
    for (size_t s = 0; s + 1 < starts.size(); ++s)
      for (int64_t t = starts[s]; t < starts[s + 1]; ++t)
        for (int64_t h = 0; h < c.heads; ++h) visit(starts[s], t, h);
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
  Guarded<T> q, k, v, d_o, o, d_q, d_k, d_v;
  Guarded<float> lse;

  explicit Trial(const Case& which)
      : c(which),
        q_size(c.tokens() * c.heads * c.head_dim),
        kv_size(c.tokens() * c.kv_heads * c.head_dim),
        q(random_values<T>(q_size, 1, 1.5)),
        k(random_values<T>(kv_size, 2, 1.5)),
        v(random_values<T>(kv_size, 3)),
        d_o(random_values<T>(q_size, 4)),
        o(q_size),
        d_q(q_size),
        d_k(kv_size),
        d_v(kv_size),
        lse(c.tokens() * c.heads) {}

  void run(Isa isa) {
    const AttentionProblem problem = c.problem();
    const auto starts = c.starts();
    const SequenceTable table{starts.data(), static_cast<int64_t>(c.lengths.size())};
    Guarded<unsigned char> forward_scratch(attention_forward_scratch_bytes(problem.shape, c.threads));
    Guarded<unsigned char> backward_scratch(attention_backward_scratch_bytes(problem.shape, c.threads));
    run_forward<T>(isa, {problem, table, q.data(), k.data(), v.data(), o.data(), lse.data(),
                         forward_scratch.data(), c.threads});
    run_backward<T>(isa, {problem, table, q.data(), k.data(), v.data(), o.data(), lse.data(), d_o.data(),
                          d_q.data(), d_k.data(), d_v.data(), backward_scratch.data(), c.threads});
    EXPECT_TRUE(forward_scratch.intact() && backward_scratch.intact());
    EXPECT_TRUE(o.intact() && lse.intact() && d_q.intact() && d_k.intact() && d_v.intact());
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
    const Reference reference{c, widen(r.q), widen(r.k), widen(r.v)};
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

TEST(AttentionKernels, reference_gradient_agrees_with_finite_differences) {
  const Case c{.lengths = {4, 6}, .padding = 1, .heads = 4, .kv_heads = 2, .head_dim = 8, .window = 3};
  const Trial<float> r(c);
  Reference reference{c, widen(r.q), widen(r.k), widen(r.v)};
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

TEST(AttentionKernels, bits_of_a_sequence_do_not_depend_on_the_batch_around_it) {
  constexpr int32_t kLength = 140;
  for (const Isa isa : isas_here())
    for (const int threads : {2, 4}) {
      Trial<uint16_t> alone(
          {.lengths = {kLength}, .padding = 0, .heads = 6, .kv_heads = 2, .threads = threads});
      Trial<uint16_t> among(
          {.lengths = {31, kLength, 77, 200}, .padding = 2, .heads = 6, .kv_heads = 2, .threads = threads});
      const int64_t q_offset = 31 * 6 * 16;
      const int64_t kv_offset = 31 * 2 * 16;
      std::copy_n(alone.q.data(), alone.q_size, among.q.data() + q_offset);
      std::copy_n(alone.d_o.data(), alone.q_size, among.d_o.data() + q_offset);
      std::copy_n(alone.k.data(), alone.kv_size, among.k.data() + kv_offset);
      std::copy_n(alone.v.data(), alone.kv_size, among.v.data() + kv_offset);
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

TEST(AttentionKernels, bits_repeat_from_run_to_run) {
  for (const Isa isa : isas_here()) {
    const Case c{.lengths = {90, 150, 10}, .heads = 4, .kv_heads = 1, .threads = 4};
    Trial<uint16_t> one(c);
    Trial<uint16_t> two(c);
    one.run(isa);
    two.run(isa);
    EXPECT_TRUE(one.o == two.o && one.d_q == two.d_q && one.d_k == two.d_k && one.d_v == two.d_v);
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
