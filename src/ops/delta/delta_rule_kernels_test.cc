// The gated delta rule over long texts, in f32 against the step form in f64; and packed rows against rows
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "ops/delta/delta_rule_kernels.h"
#include "ops/kernel_test_util.h"
#include "ops/segments.h"

namespace plimsoll {
namespace {

using Reals = std::vector<double>;
using Floats = std::vector<float>;

constexpr int64_t kDim = 8;  // of keys and of values
constexpr int64_t kHeads = 2, kKeyHeads = 1;

// Inputs and results of some tokens.
struct Text {
  std::vector<int32_t> starts;
  Floats q, k, v, g, beta, d_o;
  Floats o = Floats(v.size()), d_q = Floats(q.size()), d_k = Floats(q.size()), d_v = Floats(v.size());
  Floats d_g = Floats(g.size()), d_beta = Floats(g.size());

  [[nodiscard]] int64_t tokens() const { return static_cast<int64_t>(g.size()) / kHeads; }
  void run(Isa isa, int threads) {
    const DeltaProblem problem{.shape = {.tokens = tokens(),
                                         .sequences = static_cast<int64_t>(starts.size()) - 1,
                                         .heads = kHeads,
                                         .key_heads = kKeyHeads,
                                         .key_dim = kDim,
                                         .value_dim = kDim}};
    const SequenceTable table{starts.data(), problem.shape.sequences};
    Floats scratch(static_cast<size_t>(std::max(delta_forward_scratch_bytes(problem.shape, threads),
                                                delta_backward_scratch_bytes(problem.shape, threads)) /
                                       4));
    const DeltaForward<float> forward{problem,  table,       q.data(), k.data(),       v.data(),
                                      g.data(), beta.data(), o.data(), scratch.data(), threads};
    PLIMSOLL_RUN_KERNEL(isa, delta_forward, forward);
    const DeltaBackward<float> backward{problem,    table,       q.data(),      k.data(),       v.data(),
                                        g.data(),   beta.data(), d_o.data(),    d_q.data(),     d_k.data(),
                                        d_v.data(), d_g.data(),  d_beta.data(), scratch.data(), threads};
    PLIMSOLL_RUN_KERNEL(isa, delta_backward, backward);
  }
};

Floats random_floats(int64_t count, unsigned seed) {
  const auto made = kernel_test::random_values<float>(count, seed);
  return {made.data(), made.data() + count};
}

Text make_text(const std::vector<int32_t>& lengths, const Floats& decays) {
  Text text;
  text.starts = {0};
  for (const int32_t length : lengths) text.starts.push_back(text.starts.back() + length);
  const int64_t tokens = text.starts.back();
  text.q = random_floats(tokens * kKeyHeads * kDim, 1);
  text.k = random_floats(tokens * kKeyHeads * kDim, 2);
  text.v = random_floats(tokens * kHeads * kDim, 3);
  text.d_o = random_floats(tokens * kHeads * kDim, 4);
  for (int64_t i = 0; i < tokens * kHeads; ++i) {
    text.g.push_back(decays[static_cast<size_t>(i) % decays.size()]);
    text.beta.push_back(static_cast<float>(i * 7 % 11) / 10.0F);
  }
  text.o.resize(text.v.size());
  for (Floats* const d : {&text.d_q, &text.d_k}) d->resize(text.q.size());
  text.d_v.resize(text.v.size());
  for (Floats* const d : {&text.d_g, &text.d_beta}) d->resize(text.g.size());
  return text;
}

// One head of a text of one sequence, token by token in f64; the head's part in the gradients of q and k is
// added.
struct Steps {
  const Text& text;
  int64_t head;
  Reals &o, &d_q, &d_k, &d_v, &d_g, &d_beta;
  std::vector<Reals> states = {Reals(kDim * kDim)};

  static size_t at(int64_t row, int64_t i) { return static_cast<size_t>(row * kDim + i); }
  [[nodiscard]] size_t gate(int64_t t) const { return static_cast<size_t>(t * kHeads + head); }
  [[nodiscard]] int64_t row(int64_t t) const { return t * kHeads + head; }
  [[nodiscard]] double beta(int64_t t) const { return static_cast<double>(text.beta[gate(t)]); }
  [[nodiscard]] double decay(int64_t t) const { return std::exp(static_cast<double>(text.g[gate(t)])); }
  static double inverse(const Floats& x, int64_t t) {
    double squares = 1e-6F;
    for (int64_t i = 0; i < kDim; ++i) squares += std::pow(static_cast<double>(x[at(t, i)]), 2);
    return 1 / std::sqrt(squares);
  }
  static Reals unit(const Floats& x, int64_t t, double factor) {
    Reals row;
    for (int64_t i = 0; i < kDim; ++i)
      row.push_back(static_cast<double>(x[at(t, i)]) * inverse(x, t) * factor);
    return row;
  }
  static double factor() { return 1 / std::sqrt(static_cast<double>(kDim)); }
  // v less what the decayed state holds for k.
  [[nodiscard]] Reals missed(int64_t t, const Reals& decayed, const Reals& k) const {
    Reals m;
    for (int64_t j = 0; j < kDim; ++j) {
      m.push_back(static_cast<double>(text.v[at(row(t), j)]));
      for (int64_t i = 0; i < kDim; ++i) m.back() -= decayed[at(i, j)] * k[static_cast<size_t>(i)];
    }
    return m;
  }
  [[nodiscard]] Reals decayed(int64_t t) const {
    Reals state = states[static_cast<size_t>(t)];
    for (double& x : state) x *= decay(t);
    return state;
  }
  void forward(int64_t t) {
    Reals state = decayed(t);
    const Reals k = unit(text.k, t, 1), q = unit(text.q, t, factor()), m = missed(t, state, k);
    for (int64_t i = 0; i < kDim; ++i)
      for (int64_t j = 0; j < kDim; ++j) {
        state[at(i, j)] += k[static_cast<size_t>(i)] * beta(t) * m[static_cast<size_t>(j)];
        o[at(row(t), j)] += state[at(i, j)] * q[static_cast<size_t>(i)];
      }
    states.push_back(state);
  }
  static void add_unit(const Floats& x, int64_t t, const Reals& d, double factor, Reals& to) {
    const Reals y = unit(x, t, 1);
    double along = 0;
    for (size_t i = 0; i < d.size(); ++i) along += y[i] * d[i];
    for (size_t i = 0; i < d.size(); ++i)
      to[at(t, static_cast<int64_t>(i))] += inverse(x, t) * factor * (d[i] - y[i] * along);
  }
  void backward(int64_t t, Reals& d_state) {
    const Reals state = decayed(t), k = unit(text.k, t, 1), q = unit(text.q, t, factor());
    const Reals m = missed(t, state, k);
    Reals of_q(kDim), of_k(kDim), of_u(kDim);
    for (int64_t i = 0; i < kDim; ++i)
      for (int64_t j = 0; j < kDim; ++j) {
        const auto key = static_cast<size_t>(i), value = static_cast<size_t>(j);
        const auto d = static_cast<double>(text.d_o[at(row(t), j)]);
        of_q[key] += d * states[static_cast<size_t>(t) + 1][at(i, j)];
        d_state[at(i, j)] += d * q[key];
        of_u[value] += d_state[at(i, j)] * k[key];
        of_k[key] += d_state[at(i, j)] * beta(t) * m[value];
      }
    double of_decay = 0;
    for (int64_t j = 0; j < kDim; ++j) {
      d_v[at(row(t), j)] = beta(t) * of_u[static_cast<size_t>(j)];
      d_beta[gate(t)] += of_u[static_cast<size_t>(j)] * m[static_cast<size_t>(j)];
      for (int64_t i = 0; i < kDim; ++i) {
        of_k[static_cast<size_t>(i)] -= state[at(i, j)] * d_v[at(row(t), j)];
        d_state[at(i, j)] -= k[static_cast<size_t>(i)] * d_v[at(row(t), j)];
        of_decay += d_state[at(i, j)] * state[at(i, j)];
        d_state[at(i, j)] *= decay(t);
      }
    }
    d_g[gate(t)] = of_decay;
    add_unit(text.q, t, of_q, factor(), d_q);
    add_unit(text.k, t, of_k, 1, d_k);
  }
};

// The largest error over the root mean square.
double error_of(const Floats& got, const Reals& want) {
  double largest = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    if (!(error <= largest)) largest = error;  // a NaN stays
    squares += want[i] * want[i];
  }
  return squares == 0 ? largest : largest / std::sqrt(squares / static_cast<double>(want.size()));
}

// Every result within `limit` of the step form's, by the results' root mean square.
void expect_step_form(const std::vector<int32_t>& lengths, const Floats& decays, double limit) {
  for (const Isa isa : kernel_test::isas_here()) {
    Text text = make_text(lengths, decays);
    text.run(isa, 2);
    Reals o(text.v.size()), d_q(text.q.size()), d_k(d_q.size()), d_v(o.size()), d_g(text.g.size()),
        d_beta(d_g.size());
    for (int64_t head = 0; head < kHeads; ++head) {
      Steps steps{text, head, o, d_q, d_k, d_v, d_g, d_beta};
      for (int64_t t = 0; t < text.tokens(); ++t) steps.forward(t);
      Reals d_state(kDim * kDim);
      for (int64_t t = text.tokens() - 1; t >= 0; --t) steps.backward(t, d_state);
    }
    SCOPED_TRACE(std::string(to_string(isa)) + ", " + std::to_string(text.tokens()) + " tokens");
    EXPECT_LT(error_of(text.o, o), limit);
    EXPECT_LT(error_of(text.d_q, d_q), limit);
    EXPECT_LT(error_of(text.d_k, d_k), limit);
    EXPECT_LT(error_of(text.d_v, d_v), limit);
    EXPECT_LT(error_of(text.d_g, d_g), limit);
    EXPECT_LT(error_of(text.d_beta, d_beta), limit);
  }
}

const Floats kDecays = {-0.3F, -0.02F, -1.1F, 0.0F, -0.7F, -2.5F, -0.001F};

TEST(DeltaRuleKernels, agree_with_the_step_form_at_the_edges_of_chunks_and_over_many_chunks) {
  for (const int32_t length : {1, 63, 64, 65, 4097}) expect_step_form({length}, kDecays, 1e-5);
}

TEST(DeltaRuleKernels, hardly_forgetting_text_is_exact_over_many_tokens) {
  expect_step_form({16384}, {-1e-5F, -3e-6F, 0.0F}, 1e-5);
}

TEST(DeltaRuleKernels, gradients_are_exact_where_nearly_everything_is_forgotten) {
  expect_step_form({700}, {-60.0F, -20.0F, -7.0F}, 1e-5);
  expect_step_form({700}, {-60.0F, -0.01F, -20.0F, -3.0F, -0.3F, -45.0F, -0.02F, -1e-3F}, 1e-5);
}

TEST(DeltaRuleKernels, a_gate_that_forgets_all_leaves_nothing_behind) {
  for (const Isa isa : kernel_test::isas_here()) {
    Text text = make_text({130}, {-0.1F});
    constexpr int64_t kGate = 70;
    for (int64_t head = 0; head < kHeads; ++head)
      text.g[static_cast<size_t>(kGate * kHeads + head)] = -1000.0F;
    for (int64_t i = 0; i < kGate * kHeads * kDim; ++i) text.v[static_cast<size_t>(i)] *= 1e20F;
    text.run(isa, 1);
    Text behind = make_text({130}, {-0.1F});
    std::fill(behind.v.begin(), behind.v.begin() + kGate * kHeads * kDim, 0.0F);
    behind.g = text.g;
    behind.run(isa, 1);
    const auto first = static_cast<std::ptrdiff_t>(kGate * kHeads * kDim);
    EXPECT_TRUE(std::equal(text.o.begin() + first, text.o.end(), behind.o.begin() + first)) << to_string(isa);
    EXPECT_EQ(text.d_g[kGate * kHeads], 0.0F) << to_string(isa);
  }
}

// Rows `begin` to `end` of all results.
void expect_rows(const Text& all, int64_t begin, const Text& alone, const char* what) {
  const auto same = [&](const Floats& of_all, const Floats& own, int64_t width) {
    const auto from = of_all.begin() + static_cast<std::ptrdiff_t>(begin * width);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), from)) << what;
  };
  same(all.o, alone.o, kHeads * kDim);
  same(all.d_q, alone.d_q, kKeyHeads * kDim);
  same(all.d_k, alone.d_k, kKeyHeads * kDim);
  same(all.d_v, alone.d_v, kHeads * kDim);
  same(all.d_g, alone.d_g, kHeads);
  same(all.d_beta, alone.d_beta, kHeads);
}

TEST(DeltaRuleKernels, packed_rows_have_the_bits_of_rows_alone) {
  const std::vector<int32_t> lengths = {70, 1, 600, 64, 129, 63, 65, 4097};
  for (const Isa isa : kernel_test::isas_here()) {
    Text packed = make_text(lengths, kDecays);
    packed.run(isa, 3);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const int64_t begin = packed.starts[i], end = packed.starts[i + 1];
      const auto part = [&](const Floats& of, int64_t width) {
        return Floats(of.begin() + begin * width, of.begin() + end * width);
      };
      Text alone = make_text({lengths[i]}, kDecays);
      alone.q = part(packed.q, kKeyHeads * kDim);
      alone.k = part(packed.k, kKeyHeads * kDim);
      alone.v = part(packed.v, kHeads * kDim);
      alone.d_o = part(packed.d_o, kHeads * kDim);
      alone.g = part(packed.g, kHeads);
      alone.beta = part(packed.beta, kHeads);
      alone.run(isa, 1);
      expect_rows(packed, begin, alone, std::string(to_string(isa)).c_str());
    }
  }
}

// Segments in the order in which a walk meets them: of each the parent is one of those that the walk is below.
std::vector<int32_t> drawn_tree(std::mt19937& random) {
  std::vector<int32_t> parents, path;
  const size_t count = 1 + random() % 40;
  for (size_t i = 0; i < count; ++i) {
    path.resize(path.size() - (random() % 3 == 0 ? random() % (path.size() + 1) : 0));
    parents.push_back(path.empty() ? -1 : path.back());
    path.push_back(static_cast<int32_t>(i));
  }
  return parents;
}

TEST(Segments, forks_have_numbers_of_their_own_below_half_of_the_segments) {
  std::mt19937 random(1);
  size_t forks_seen = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::vector<int32_t> parents = drawn_tree(random);
    const auto count = static_cast<int64_t>(parents.size());
    const SequenceTable table{nullptr, count, parents.data()};
    std::set<int64_t> numbers;
    for (int64_t segment = 0; segment < count; ++segment) {
      if (!forks(table, segment)) continue;
      ++forks_seen;
      const int64_t number = fork_number(table, segment);
      EXPECT_LT(number, count / 2);
      EXPECT_TRUE(numbers.insert(number).second);
    }
  }
  EXPECT_GT(forks_seen, 1000U);
}

}  // namespace
}  // namespace plimsoll
