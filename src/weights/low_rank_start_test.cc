// The parts of weights that adapters begin with.
#include "weights/low_rank_start.h"

#include <gtest/gtest.h>

#include <cmath>

#include "weights/test_machine.h"

namespace plimsoll {
namespace {

// A weight with the singular values 8, 4, 2, 1, ... between vectors of sines.
std::vector<float> weight_of(int64_t out, int64_t in, int values) {
  std::vector<float> weight(static_cast<size_t>(out * in));
  const auto wave = [](int64_t i, int64_t n, int k) {
    return std::sqrt(2.0 / static_cast<double>(n)) *
           std::cos(M_PI * (static_cast<double>(i) + 0.5) * (k + 1) / static_cast<double>(n));
  };
  for (int k = 0; k < values; ++k)
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        weight[static_cast<size_t>(o * in + i)] +=
            static_cast<float>(std::ldexp(8.0, -k) * wave(o, out, k) * wave(i, in, k));
  return weight;
}

double distance(const std::vector<float>& weight, const LowRank& part, int64_t in, int64_t r, double scale) {
  double squares = 0;
  for (size_t at = 0; at < weight.size(); ++at) {
    const size_t o = at / static_cast<size_t>(in), i = at % static_cast<size_t>(in);
    double sum = 0;
    for (size_t k = 0; k < static_cast<size_t>(r); ++k)
      sum += part.b[o * static_cast<size_t>(r) + k] * part.a[k * static_cast<size_t>(in) + i];
    squares += std::pow(weight[at] - scale * sum, 2);
  }
  return std::sqrt(squares);
}

TEST(PrincipalPart, leaves_the_smaller_singular_values) {
  const std::vector<float> weight = weight_of(24, 40, 6);
  const WeightView view{weight, 24, 40};
  for (const int64_t iterations : {0, 3}) {
    const LowRank part = principal_part(view, 2, 0.5, iterations, 7, Isa::avx2, 1);
    EXPECT_NEAR(distance(weight, part, 40, 2, 0.5), std::sqrt(4.0 + 1 + 0.25 + 0.0625), 1e-4);
    double a = 0, b = 0;  // the largest value's root over the scale goes to either side
    for (size_t i = 0; i < 40; ++i) a += part.a[i] * part.a[i];
    for (size_t o = 0; o < 24; ++o) b += part.b[2 * o] * part.b[2 * o];
    EXPECT_NEAR(a, 16, 1e-3);
    EXPECT_NEAR(b, 16, 1e-3);
  }
}

TEST(PrincipalPart, of_full_rank_is_the_weight) {
  const std::vector<float> weight = weight_of(6, 9, 6);
  EXPECT_NEAR(distance(weight, principal_part({weight, 6, 9}, 6, 2.0, 0, 7, Isa::avx2, 1), 9, 6, 2.0), 0,
              1e-4);
}

TEST(LeadingPart, has_the_first_columns_of_the_weight) {
  const std::vector<float> weight = weight_of(12, 8, 6);
  const LowRank part = leading_part({weight, 12, 8}, 3, Isa::avx2, 1);
  for (size_t o = 0; o < 12; ++o)
    for (size_t i = 0; i < 3; ++i) {
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += part.b[o * 3 + k] * part.a[k * 8 + i];
      EXPECT_NEAR(sum, weight[o * 8 + i], 1e-5);
    }
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (size_t o = 0; o < 12; ++o) sum += part.b[o * 3 + i] * part.b[o * 3 + j];
      EXPECT_NEAR(sum, i == j ? 1 : 0, 1e-6);
    }
}

}  // namespace
}  // namespace plimsoll
