#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/kernel_test_util.h"
#include "ops/norm/rms_norm_kernels.h"
#include "ops/philox.h"
#include "ops/pointwise/dropout_kernels.h"
#include "ops/pointwise/rope_kernels.h"
#include "ops/pointwise/swiglu_kernels.h"

namespace plimsoll {
namespace {

using kernel_test::from_double;
using kernel_test::Guarded;
using kernel_test::isas_here;
using kernel_test::random_values;
using kernel_test::to_double;

template <class T>
constexpr double kTolerance = sizeof(T) == 4 ? 3e-6 : 8e-3;  // bf16: two roundings, 2^-8

// |got - want| within tolerance of the larger of |want| and 1.
template <class T>
void expect_close(const Guarded<T>& got, const std::vector<double>& want, double tolerance = kTolerance<T>) {
  ASSERT_TRUE(got.intact());
  for (int64_t i = 0; i < got.size(); ++i) {
    const double w = want[static_cast<size_t>(i)];
    ASSERT_NEAR(to_double(got[i]), w, tolerance * std::max(1.0, std::abs(w))) << "element " << i;
  }
}

// Gradient of `loss` by central differences.
std::vector<double> differences(std::vector<double> x,
                                const std::function<double(const std::vector<double>&)>& loss) {
  std::vector<double> out;
  for (double& value : x) {
    const double kept = value;
    constexpr double kStep = 1e-5;
    value = kept + kStep;
    const double above = loss(x);
    value = kept - kStep;
    out.push_back((above - loss(x)) / (2 * kStep));
    value = kept;
  }
  return out;
}

template <class T>
std::vector<double> widen(const Guarded<T>& x) {
  std::vector<double> out;
  for (int64_t i = 0; i < x.size(); ++i) out.push_back(to_double(x[i]));
  return out;
}

constexpr double kEps = 1e-6;

std::vector<double> reference_norm(const std::vector<double>& x, const std::vector<double>& weight) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size() / weight.size(); ++row) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += std::pow(x[row * weight.size() + i], 2);
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + kEps);
    for (size_t i = 0; i < weight.size(); ++i)
      y[row * weight.size() + i] = x[row * weight.size() + i] * rstd * weight[i];
  }
  return y;
}

template <class T, class W>
void run(Isa isa, const RmsNorm<T, W>& a) {
  PLIMSOLL_RUN_KERNEL(isa, rms_norm, a);
}
template <class T, class W, class G>
void run(Isa isa, const RmsNormGrad<T, W, G>& a) {
  PLIMSOLL_RUN_KERNEL(isa, rms_norm_grad, a);
}

template <class T, class W>
void norm_matches_reference(int64_t rows, int64_t width) {
  for (const Isa isa : isas_here()) {
    const auto x = random_values<T>(rows * width, 1);
    const auto weight = random_values<W>(width, 2);
    const auto d_y = random_values<T>(rows * width, 3);
    const auto d_x_in = random_values<T>(rows * width, 4);
    Guarded<T> y(rows * width);
    Guarded<float> rstd(rows);
    run<T, W>(isa, {x.data(), weight.data(), y.data(), rstd.data(), rows, width, 1e-6F, 2});
    EXPECT_TRUE(rstd.intact());
    expect_close(y, reference_norm(widen(x), widen(weight)), 2 * kTolerance<T>);

    Guarded<T> d_x(rows * width);
    Guarded<W> d_weight(width);
    Guarded<float> partials((rows + kRmsNormRowsPerBlock - 1) / kRmsNormRowsPerBlock * width);
    run<T, W, W>(isa, {d_y.data(), x.data(), weight.data(), rstd.data(), d_x_in.data(), d_x.data(),
                       d_weight.data(), false, partials.data(), rows, width, 2});
    EXPECT_TRUE(partials.intact());
    const auto loss = [&](const std::vector<double>& x_values, const std::vector<double>& w) {
      const auto out = reference_norm(x_values, w);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += out[i] * to_double(d_y[static_cast<int64_t>(i)]);
      return sum;
    };
    auto want_x = differences(widen(x), [&](const auto& v) { return loss(v, widen(weight)); });
    for (size_t i = 0; i < want_x.size(); ++i) want_x[i] += to_double(d_x_in[static_cast<int64_t>(i)]);
    expect_close(d_x, want_x, 3 * kTolerance<T>);
    expect_close(d_weight, differences(widen(weight), [&](const auto& v) { return loss(widen(x), v); }),
                 4 * kTolerance<T>);
  }
}

TEST(RmsNorm, matches_the_reference_and_its_finite_differences) {
  norm_matches_reference<float, float>(3, 16);
  norm_matches_reference<float, float>(7, 21);
  norm_matches_reference<uint16_t, float>(5, 40);
  norm_matches_reference<uint16_t, uint16_t>(9, 24);
}

TEST(RmsNorm, rounds_the_normalised_value_before_the_product_for_bf16) {
  for (const Isa isa : isas_here()) {
    const auto x = random_values<uint16_t>(64, 1);
    const auto weight = random_values<float>(64, 2);
    Guarded<uint16_t> y(64);
    Guarded<float> rstd(1);
    run<uint16_t, float>(isa, {x.data(), weight.data(), y.data(), rstd.data(), 1, 64, 1e-6F, 1});
    for (int64_t i = 0; i < 64; ++i) {
      const auto normalised = from_double<uint16_t>(static_cast<float>(to_double(x[i])) * rstd[0]);
      EXPECT_EQ(y[i], from_double<uint16_t>(static_cast<float>(to_double(normalised)) * weight[i]));
    }
  }
}

TEST(RmsNorm, weight_gradient_accumulates_and_does_not_depend_on_the_threads) {
  constexpr int64_t kRows = 200;
  constexpr int64_t kWidth = 48;
  const auto x = random_values<float>(kRows * kWidth, 1);
  const auto weight = random_values<float>(kWidth, 2);
  const auto d_y = random_values<float>(kRows * kWidth, 3);
  const auto rstd = random_values<float>(kRows, 4);
  for (const Isa isa : isas_here()) {
    const auto gradient = [&](int threads, bool accumulate, float before) {
      Guarded<float> d_weight(kWidth);
      std::fill_n(d_weight.data(), kWidth, before);
      Guarded<float> partials(4 * kWidth);
      run<float, float, float>(isa, {d_y.data(), x.data(), weight.data(), rstd.data(), nullptr, nullptr,
                                     d_weight.data(), accumulate, partials.data(), kRows, kWidth, threads});
      return d_weight;
    };
    const auto once = gradient(1, false, 7.0F);
    EXPECT_TRUE(once == gradient(3, false, 9.0F));
    const auto added = gradient(2, true, 2.0F);
    for (int64_t i = 0; i < kWidth; ++i) EXPECT_EQ(added[i], once[i] + 2.0F);
  }
}

TEST(RmsNorm, gradient_may_be_written_over_what_it_is_added_to) {
  const auto x = random_values<uint16_t>(3 * 40, 1);
  const auto weight = random_values<float>(40, 2);
  const auto d_y = random_values<uint16_t>(3 * 40, 3);
  const auto rstd = random_values<float>(3, 4);
  for (const Isa isa : isas_here()) {
    const auto before = random_values<uint16_t>(3 * 40, 5);
    auto in_place = before;
    Guarded<uint16_t> apart(3 * 40);
    for (auto* d_x : {&in_place, &apart})
      run<uint16_t, float, float>(isa, {d_y.data(), x.data(), weight.data(), rstd.data(),
                                        d_x == &apart ? before.data() : in_place.data(), d_x->data(), nullptr,
                                        false, nullptr, 3, 40, 2});
    EXPECT_TRUE(in_place == apart);
  }
}

template <class T>
void run(Isa isa, const Rope<T>& a) {
  PLIMSOLL_RUN_KERNEL(isa, rope, a);
}

TEST(Rope, turns_pairs_by_position_times_frequency) {
  constexpr int64_t kHeads = 3;
  for (const int64_t dim : {8, 24, 64}) {
    const std::vector<int32_t> positions{0, 1, 5, 131071};
    std::vector<float> inv_freq;
    for (int64_t i = 0; i < dim / 2; ++i)
      inv_freq.push_back(
          static_cast<float>(std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(dim))));
    Guarded<float> table(4 * dim);
    rope_table(positions.data(), 4, inv_freq.data(), dim / 2, 1.25F, {}, table.data(), 2);
    EXPECT_TRUE(table.intact());
    const auto x = random_values<float>(4 * kHeads * dim, 1);
    std::vector<double> want;
    for (int64_t row = 0; row < 4 * kHeads; ++row)
      for (int64_t i = 0; i < dim; ++i) {
        const auto pair = static_cast<size_t>(i % (dim / 2));
        const double angle = static_cast<double>(positions[static_cast<size_t>(row / kHeads)]) *
                             static_cast<double>(inv_freq[pair]);
        const double low = to_double(x[row * dim + static_cast<int64_t>(pair)]);
        const double high = to_double(x[row * dim + static_cast<int64_t>(pair) + dim / 2]);
        want.push_back(1.25 * (i < dim / 2 ? low * std::cos(angle) - high * std::sin(angle)
                                           : high * std::cos(angle) + low * std::sin(angle)));
      }
    for (const Isa isa : isas_here()) {
      Guarded<float> y(x.size());
      run<float>(isa, {x.data(), table.data(), y.data(), 4, kHeads, dim, dim, false, 2});
      expect_close(y, want);
    }
  }
}

TEST(Rope, inverse_undoes_it_in_place) {
  const std::vector<int32_t> positions{3, 77};
  const std::vector<float> inv_freq{1.0F, 0.3F, 0.1F, 0.01F};
  Guarded<float> table(2 * 8);
  rope_table(positions.data(), 2, inv_freq.data(), 4, 1.0F, {}, table.data(), 1);
  for (const Isa isa : isas_here()) {
    const auto x = random_values<uint16_t>(2 * 5 * 8, 1);
    auto y = x;
    for (const bool inverse : {false, true})
      run<uint16_t>(isa, {y.data(), table.data(), y.data(), 2, 5, 8, 8, inverse, 2});
    expect_close(y, widen(x), 2 * kTolerance<uint16_t>);
  }
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

template <class T>
void swiglu_matches_reference(int64_t rows, int64_t width) {
  for (const Isa isa : isas_here()) {
    const auto gate_up = random_values<T>(rows * 2 * width, 1, 3.0);
    const auto d_s = random_values<T>(rows * width, 2);
    Guarded<T> s(rows * width);
    const Swiglu<T> forward{gate_up.data(), gate_up.data() + width, 2 * width, s.data(), rows, width, 2};
    PLIMSOLL_RUN_KERNEL(isa, swiglu, forward);
    auto in_place = gate_up;
    const SwigluGrad<T> backward{d_s.data(),
                                 in_place.data(),
                                 in_place.data() + width,
                                 in_place.data(),
                                 in_place.data() + width,
                                 2 * width,
                                 2 * width,
                                 rows,
                                 width,
                                 2};
    PLIMSOLL_RUN_KERNEL(isa, swiglu_grad, backward);
    std::vector<double> want_s;
    std::vector<double> want_gradient(static_cast<size_t>(gate_up.size()));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const double gate = to_double(gate_up[row * 2 * width + i]);
        const double up = to_double(gate_up[row * 2 * width + width + i]);
        const double d = to_double(d_s[row * width + i]);
        want_s.push_back(silu(gate) * up);
        constexpr double kStep = 1e-5;
        want_gradient[static_cast<size_t>(row * 2 * width + i)] =
            d * up * (silu(gate + kStep) - silu(gate - kStep)) / (2 * kStep);
        want_gradient[static_cast<size_t>(row * 2 * width + width + i)] = d * silu(gate);
      }
    expect_close(s, want_s);
    expect_close(in_place, want_gradient);
  }
}

TEST(Swiglu, matches_the_reference_and_its_finite_differences_in_place) {
  for (const int64_t width : {1, 16, 37}) {
    swiglu_matches_reference<float>(3, width);
    swiglu_matches_reference<uint16_t>(3, width);
  }
}

TEST(Swiglu, large_gates_stay_finite) {
  for (const Isa isa : isas_here()) {
    Guarded<float> gate(2);
    Guarded<float> up(2);
    Guarded<float> s(2);
    gate[0] = -1e4F;
    gate[1] = 1e4F;
    up[0] = up[1] = 2.0F;
    const Swiglu<float> a{gate.data(), up.data(), 2, s.data(), 1, 2, 1};
    PLIMSOLL_RUN_KERNEL(isa, swiglu, a);
    EXPECT_NEAR(s[0], 0.0F, 1e-30F);
    EXPECT_EQ(s[1], 2e4F);
  }
}

TEST(Dropout, mask_is_the_one_of_sample_position_and_feature) {
  constexpr int64_t kWidth = 150;
  constexpr double kProbability = 0.3;
  const std::vector<int32_t> samples{4, 4, 9};
  const std::vector<int32_t> positions{0, 7, 7};
  const auto x = random_values<float>(3 * kWidth, 1);
  for (const Isa isa : isas_here()) {
    Guarded<float> y(3 * kWidth);
    const Dropout<float> a{x.data(), y.data(), 3, kWidth, samples.data(), positions.data(), kProbability,
                           42,       99,       5, 2};
    PLIMSOLL_RUN_KERNEL(isa, dropout, a);
    EXPECT_TRUE(y.intact());
    int64_t dropped = 0;
    for (size_t t = 0; t < 3; ++t) {
      const auto stream =
          philox_stream(42, 99, static_cast<uint32_t>(positions[t]), static_cast<uint32_t>(samples[t]), 5);
      for (int64_t i = 0; i < kWidth; ++i) {
        const int64_t at = static_cast<int64_t>(t) * kWidth + i;
        const bool kept = philox_bits32(stream, i) >= static_cast<uint32_t>(kProbability * 4294967296.0);
        dropped += kept ? 0 : 1;
        ASSERT_FLOAT_EQ(y[at], kept ? x[at] / 0.7F : 0.0F);
      }
    }
    // 450 draws: five standard deviations are 49.
    EXPECT_NEAR(static_cast<double>(dropped), 135.0, 49.0);
  }
}

}  // namespace
}  // namespace plimsoll
