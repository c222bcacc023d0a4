#include <gtest/gtest.h>

#include <cmath>

#include "ops/kernel_test_util.h"
#include "ops/linear/int8.h"
#include "tensor/f16.h"

namespace plimsoll {
namespace {

using kernel_test::Guarded;
using kernel_test::isas_here;
using kernel_test::random_values;

struct Int8Weight {
  Guarded<int8_t> codes;
  Guarded<float> absmax;
};

Int8Weight quantize(const Guarded<float>& values, int64_t rows, Isa isa) {
  Int8Weight result{Guarded<int8_t>(values.size()), Guarded<float>(rows)};
  const Int8Quantize args{values.data(), rows, values.size() / rows, result.codes.data(),
                          result.absmax.data()};
  isa == Isa::avx2 ? avx2::int8_quantize(args) : avx512::int8_quantize(args);
  return result;
}

template <class T>
Guarded<T> dequantize(const Int8Weight& from, Isa isa) {
  Guarded<T> weight(from.codes.size());
  const Int8Dequantize<T> args{.codes = from.codes.data(),
                               .absmax = from.absmax.data(),
                               .weight = weight.data(),
                               .rows = from.absmax.size(),
                               .width = from.codes.size() / from.absmax.size(),
                               .threads = 2};
  isa == Isa::avx2 ? avx2::int8_dequantize(args) : avx512::int8_dequantize(args);
  return weight;
}

Guarded<float> values_of(std::initializer_list<float> list) {
  Guarded<float> values(static_cast<int64_t>(list.size()));
  int64_t i = 0;
  for (const float value : list) values[i++] = value;
  return values;
}

std::vector<int> all_of(const Guarded<int8_t>& codes) { return {codes.data(), codes.data() + codes.size()}; }

constexpr int64_t kRows = 7, kWidth = 37;  // rows end within a vector

// By hand: 127 / 2 = 63.5, and 127 / 0.5 = 254. Halves go to the even code.
TEST(Int8, a_code_is_the_value_times_127_by_the_rows_largest_magnitude_ties_to_even) {
  const Guarded<float> values = values_of({2.0F, -1.0F, 0.0F, 1.0F,        // 127, -63.5, 0, 63.5
                                           -0.5F, 0.25F, 0.375F, -0.0F});  // -127, 63.5, 95.25, 0
  for (const Isa isa : isas_here()) {
    const Int8Weight q = quantize(values, 2, isa);
    ASSERT_TRUE(q.codes.intact() && q.absmax.intact());
    EXPECT_EQ(all_of(q.codes), (std::vector<int>{127, -64, 0, 64, -127, 64, 95, 0}));
    EXPECT_EQ(q.absmax[0], 2.0F);
    EXPECT_EQ(q.absmax[1], 0.5F);
  }
}

// bitsandbytes makes weights f16 before it quantises them, whatever they were.
TEST(Int8, values_are_those_that_f16_holds) {
  const float value = 1.0003F;  // f16 has 1.0 and 1.00098
  for (const Isa isa : isas_here()) {
    const Int8Weight q = quantize(values_of({value, 1e-9F}), 1, isa);
    EXPECT_EQ(q.absmax[0], f32_from_f16(f16_from_f32(value)));
    EXPECT_EQ(q.absmax[0], 1.0F);
    EXPECT_EQ(q.codes[0], 127);
    EXPECT_EQ(q.codes[1], 0);
  }
}

TEST(Int8, codes_are_those_of_the_formula) {
  const Guarded<float> values = random_values<float>(kRows * kWidth, 1, 0.02);
  for (const Isa isa : isas_here()) {
    const Int8Weight q = quantize(values, kRows, isa);
    for (int64_t row = 0; row < kRows; ++row) {
      float absmax = 0;
      for (int64_t i = 0; i < kWidth; ++i)
        absmax = std::max(absmax, std::fabs(f32_from_f16(f16_from_f32(values[row * kWidth + i]))));
      ASSERT_EQ(q.absmax[row], absmax) << row;
      for (int64_t i = row * kWidth; i < (row + 1) * kWidth; ++i) {
        const float half = f32_from_f16(f16_from_f32(values[i]));
        ASSERT_EQ(static_cast<float>(q.codes[i]), std::nearbyint(half * (1.0F / absmax * 127.0F))) << i;
      }
    }
  }
}

TEST(Int8, instruction_sets_give_the_same_bytes) {
  const Guarded<float> values = random_values<float>(kRows * kWidth, 2);
  const Int8Weight q = quantize(values, kRows, isas_here().front());
  const auto weight = dequantize<uint16_t>(q, isas_here().front());
  for (const Isa isa : isas_here()) {
    const Int8Weight again = quantize(values, kRows, isa);
    EXPECT_TRUE(again.codes == q.codes);
    EXPECT_TRUE(again.absmax == q.absmax);
    EXPECT_TRUE(dequantize<uint16_t>(q, isa) == weight);
  }
}

TEST(Int8, a_weight_is_its_code_times_a_127th_of_the_absmax_rounded_once) {
  const Int8Weight q = quantize(random_values<float>(kRows * kWidth, 3), kRows, isas_here().front());
  for (const Isa isa : isas_here()) {
    const auto full = dequantize<float>(q, isa);
    const auto half = dequantize<uint16_t>(q, isa);
    ASSERT_TRUE(full.intact() && half.intact());
    for (int64_t i = 0; i < full.size(); ++i) {
      const float want = static_cast<float>(q.codes[i]) * (q.absmax[i / kWidth] * (1.0F / 127.0F));
      ASSERT_EQ(full[i], want) << i;
      ASSERT_EQ(half[i], kernel_test::from_double<uint16_t>(static_cast<double>(want))) << i;
    }
  }
}

TEST(Int8, no_weight_is_off_by_more_than_half_a_step) {
  const Guarded<float> values = random_values<float>(kRows * kWidth, 4);
  for (const Isa isa : isas_here()) {
    const Int8Weight q = quantize(values, kRows, isa);
    const auto weight = dequantize<float>(q, isa);
    for (int64_t i = 0; i < values.size(); ++i)  // and f16's rounding
      EXPECT_NEAR(weight[i], values[i], q.absmax[i / kWidth] * (0.5F / 127.0F + 1e-3F));
  }
}

TEST(Int8, a_row_of_zeros_stays_zero) {
  Guarded<float> zeros(kWidth);
  for (int64_t i = 0; i < zeros.size(); ++i) zeros[i] = 0;
  for (const Isa isa : isas_here()) {
    const auto weight = dequantize<float>(quantize(zeros, 1, isa), isa);
    for (int64_t i = 0; i < kWidth; ++i) EXPECT_EQ(weight[i], 0.0F);
  }
}

TEST(Int8, what_f16_does_not_hold_reaches_the_scale_of_its_row_and_of_no_other) {
  for (const float bad : {std::nanf(""), INFINITY, 70000.0F}) {
    Guarded<float> values = random_values<float>(2 * kWidth, 5);
    values[3] = bad;
    for (const Isa isa : isas_here()) {
      const Int8Weight q = quantize(values, 2, isa);
      EXPECT_TRUE(std::isnan(q.absmax[0])) << bad;
      EXPECT_FALSE(std::isnan(q.absmax[1])) << bad;
    }
  }
}

}  // namespace
}  // namespace plimsoll
