#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/kernel_test_util.h"
#include "ops/optimizer/adamw_kernels.h"
#include "ops/optimizer/grad_norm_kernels.h"
#include "ops/philox.h"

namespace plimsoll {
namespace {

using kernel_test::from_double;
using kernel_test::Guarded;
using kernel_test::isas_here;
using kernel_test::random_values;
using kernel_test::to_double;

TEST(Philox, gives_the_published_test_vectors) {
  // Random123, kat_vectors: philox 4x32 with 10 rounds.
  uint32_t out[4];
  philox({}, 0, out);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 4),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, out);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 4),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  philox({0xa4093822, 0x299f31d0, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x243f6a88, out);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 4),
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

template <class P, class G, class S>
struct Trial {
  Guarded<P> weight;
  Guarded<G> gradient;
  Guarded<S> m, v;
  Guarded<uint16_t> copy;

  explicit Trial(int64_t count)
      : weight(random_values<P>(count, 1)),
        gradient(random_values<G>(count, 2)),
        m(random_values<S>(count, 3, 0.1)),
        v(random_values<S>(count, 4, 0.1)),
        copy(count) {
    for (int64_t i = 0; i < count; ++i) v[i] = from_double<S>(std::abs(to_double(v[i])));
  }
  void run(Isa isa, int threads, bool with_copy = false) {
    AdamW<P, G, S> a{step(),
                     77,
                     weight.data(),
                     with_copy ? copy.data() : nullptr,
                     gradient.data(),
                     m.data(),
                     v.data(),
                     weight.size(),
                     0,
                     threads};
    run_part(isa, a);
    EXPECT_TRUE(weight.intact() && gradient.intact() && m.intact() && v.intact() && copy.intact());
  }
  static void run_part(Isa isa, const AdamW<P, G, S>& a) { PLIMSOLL_RUN_KERNEL(isa, adamw, a); }
  static AdamWStep step() {
    return {
        .learning_rate = 1e-2, .beta2 = 0.99, .weight_decay = 0.1, .clip_factor = 0.5, .step = 3, .seed = 11};
  }
  friend bool operator==(const Trial&, const Trial&) = default;
};

struct Updated {
  double weight, m, v;
};
Updated reference(double weight, double g, double m, double v) {
  const AdamWStep s = Trial<float, float, float>::step();
  g *= s.clip_factor;
  weight *= 1 - s.learning_rate * s.weight_decay;
  m = s.beta1 * m + (1 - s.beta1) * g;
  v = s.beta2 * v + (1 - s.beta2) * g * g;
  const double m_hat = m / (1 - std::pow(s.beta1, s.step));
  const double v_hat = v / (1 - std::pow(s.beta2, s.step));
  return {weight - s.learning_rate * m_hat / (std::sqrt(v_hat) + s.eps), m, v};
}

template <class P, class G, class S>
void update_matches_reference() {
  for (const Isa isa : isas_here()) {
    const Trial<P, G, S> before(300);
    auto after = before;
    after.run(isa, 2, true);
    // Stochastic rounding is off by less than one place, 2^-7 of the value.
    const auto within = [](auto type, double want) {
      return sizeof(type) == 4 ? 1e-6 * std::max(1.0, std::abs(want)) : std::abs(want) * 0x1p-7;
    };
    for (int64_t i = 0; i < before.weight.size(); ++i) {
      const Updated want = reference(to_double(before.weight[i]), to_double(before.gradient[i]),
                                     to_double(before.m[i]), to_double(before.v[i]));
      ASSERT_NEAR(to_double(after.weight[i]), want.weight, within(P{}, want.weight) + 1e-6);
      ASSERT_NEAR(to_double(after.m[i]), want.m, within(S{}, want.m) + 1e-6);
      ASSERT_NEAR(to_double(after.v[i]), want.v, within(S{}, want.v) + 1e-6);
      if constexpr (sizeof(P) == 4) {
        ASSERT_EQ(after.copy[i], from_double<uint16_t>(to_double(after.weight[i])));
      }
    }
  }
}

TEST(AdamW, matches_the_reference_for_every_precision) {
  update_matches_reference<float, float, float>();
  update_matches_reference<float, uint16_t, float>();
  update_matches_reference<float, float, uint16_t>();
  update_matches_reference<float, uint16_t, uint16_t>();
  update_matches_reference<uint16_t, float, float>();
  update_matches_reference<uint16_t, uint16_t, float>();
  update_matches_reference<uint16_t, float, uint16_t>();
  update_matches_reference<uint16_t, uint16_t, uint16_t>();
}

TEST(AdamW, bits_depend_neither_on_threads_nor_instruction_set_nor_on_how_the_weight_is_split) {
  using Pure = Trial<uint16_t, uint16_t, uint16_t>;
  Pure whole(1000);
  whole.run(isas_here().front(), 1);
  for (const Isa isa : isas_here()) {
    Pure threaded(1000);
    threaded.run(isa, 3);
    EXPECT_TRUE(threaded == whole);
    Pure split(1000);
    for (const int64_t begin : {0, 384})
      Pure::run_part(isa,
                     {Pure::step(), 77, split.weight.data() + begin, nullptr, split.gradient.data() + begin,
                      split.m.data() + begin, split.v.data() + begin, begin == 0 ? 384 : 616, begin, 2});
    EXPECT_TRUE(split == whole);
  }
}

TEST(AdamW, stochastic_rounding_takes_the_documented_bits_and_keeps_the_mean) {
  constexpr int64_t kCount = 4096;
  // No gradient and no moments: the weight is only decayed, to 0.9990 of a bf16 value.
  for (const Isa isa : isas_here()) {
    Trial<uint16_t, float, float> t(kCount);
    std::fill_n(t.weight.data(), kCount, from_double<uint16_t>(1.5));
    std::fill_n(t.gradient.data(), kCount, 0.0F);
    std::fill_n(t.m.data(), kCount, 0.0F);
    std::fill_n(t.v.data(), kCount, 0.0F);
    t.run(isa, 2);
    const float decayed = 1.5F * static_cast<float>(1.0 - 1e-2 * 0.1);
    const auto stream = philox_stream(11, 77, 0, 3, 0);
    double mean = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const uint32_t sum = std::bit_cast<uint32_t>(decayed) + philox_bits16(stream, i);
      ASSERT_EQ(t.weight[i], static_cast<uint16_t>(sum >> 16));
      mean += to_double(t.weight[i]) / kCount;
    }
    // A place is 2^-7: the mean of 4096 has a standard deviation of at most 6.1e-5.
    EXPECT_NEAR(mean, static_cast<double>(decayed), 3e-4);
  }
}

TEST(AdamW, not_a_number_stays_one_through_stochastic_rounding) {
  for (const Isa isa : isas_here()) {
    Trial<uint16_t, float, float> t(20);
    t.gradient[19] = std::numeric_limits<float>::quiet_NaN();
    t.run(isa, 1);
    EXPECT_TRUE(std::isnan(to_double(t.weight[19])));
    EXPECT_FALSE(std::isnan(to_double(t.weight[18])));
  }
}

template <class T>
void sum_matches(int64_t count) {
  const auto x = random_values<T>(count, 1);
  double want = 0;
  for (int64_t i = 0; i < count; ++i) want += to_double(x[i]) * to_double(x[i]);
  for (const Isa isa : isas_here()) {
    const auto sum = [&](int threads) {
      Guarded<double> partials((count + kSumOfSquaresBlock - 1) / kSumOfSquaresBlock);
      const SumOfSquares<T> a{x.data(), count, partials.data(), threads};
      const double total = isa == Isa::avx2 ? avx2::sum_of_squares(a) : avx512::sum_of_squares(a);
      EXPECT_TRUE(partials.intact());
      return total;
    };
    EXPECT_NEAR(sum(1), want, want * 1e-12);
    EXPECT_EQ(sum(1), sum(3));
  }
}

TEST(SumOfSquares, is_exact_to_f64_and_the_same_for_any_number_of_threads) {
  for (const int64_t count : {1, 17, 65536, 200003}) {
    sum_matches<float>(count);
    sum_matches<uint16_t>(count);
  }
}

}  // namespace
}  // namespace plimsoll
