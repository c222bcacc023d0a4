#include <gtest/gtest.h>

#include <cmath>

#include "ops/dynamic_map.h"
#include "ops/kernel_test_util.h"
#include "ops/linear/nf4.h"

namespace plimsoll {
namespace {

using kernel_test::Guarded;
using kernel_test::isas_here;
using kernel_test::random_values;

struct Quantized {
  Guarded<uint8_t> codes;
  Guarded<float> absmax;
};

Quantized quantize(const Guarded<float>& values, Isa isa) {
  Quantized result{Guarded<uint8_t>(values.size() / 2), Guarded<float>(nf4_blocks(values.size()))};
  const Nf4Quantize args{values.data(), values.size(), result.codes.data(), result.absmax.data()};
  isa == Isa::avx2 ? avx2::nf4_quantize(args) : avx512::nf4_quantize(args);
  return result;
}

template <class T>
Guarded<T> dequantize(const Quantized& from, int64_t count, Isa isa) {
  Guarded<T> weight(count);
  const Nf4Dequantize<T> args{.codes = from.codes.data(),
                              .absmax = from.absmax.data(),
                              .weight = weight.data(),
                              .count = count,
                              .threads = 2};
  isa == Isa::avx2 ? avx2::nf4_dequantize(args) : avx512::nf4_dequantize(args);
  return weight;
}

int code_at(const Quantized& q, int64_t i) {
  const int byte = q.codes[i / 2];
  return i % 2 == 0 ? byte >> 4 : byte & 15;
}

// More than one thread's piece of blocks, and a last block of 22.
constexpr int64_t kCount = 64 * 700 + 22;

TEST(Nf4, every_code_is_that_of_the_nearest_level) {
  const Guarded<float> values = random_values<float>(kCount, 1, 0.02);
  for (const Isa isa : isas_here()) {
    const Quantized q = quantize(values, isa);
    ASSERT_TRUE(q.codes.intact() && q.absmax.intact());
    for (int64_t i = 0; i < kCount; ++i) {
      const float scaled = values[i] / q.absmax[i / kNf4Block];
      const float error = std::fabs(kNf4Levels[code_at(q, i)] - scaled);
      for (const float level : kNf4Levels) ASSERT_LE(error, std::fabs(level - scaled) + 1e-6F) << i;
    }
  }
}

TEST(Nf4, instruction_sets_give_the_same_bytes) {
  const Guarded<float> values = random_values<float>(kCount, 2);
  const Quantized q = quantize(values, isas_here().front());
  const auto weight = dequantize<uint16_t>(q, kCount, isas_here().front());
  for (const Isa isa : isas_here()) {
    const Quantized again = quantize(values, isa);
    EXPECT_TRUE(again.codes == q.codes);
    EXPECT_TRUE(again.absmax == q.absmax);
    EXPECT_TRUE(dequantize<uint16_t>(q, kCount, isa) == weight);
  }
}

TEST(Nf4, a_weight_is_its_level_times_the_scale_rounded_once) {
  const Quantized q = quantize(random_values<float>(kCount, 3), isas_here().front());
  for (const Isa isa : isas_here()) {
    const auto full = dequantize<float>(q, kCount, isa);
    const auto half = dequantize<uint16_t>(q, kCount, isa);
    ASSERT_TRUE(full.intact() && half.intact());
    for (int64_t i = 0; i < kCount; ++i) {
      const float want = kNf4Levels[code_at(q, i)] * q.absmax[i / kNf4Block];
      ASSERT_EQ(full[i], want) << i;
      ASSERT_EQ(half[i], kernel_test::from_double<uint16_t>(static_cast<double>(want))) << i;
    }
  }
}

TEST(Nf4, what_was_quantised_once_stays_as_it_is) {
  const Quantized q = quantize(random_values<float>(kCount, 4), isas_here().front());
  for (const Isa isa : isas_here())
    EXPECT_TRUE(quantize(dequantize<float>(q, kCount, isa), isa).codes == q.codes);
}

TEST(Nf4, a_block_of_zeros_stays_zero) {
  Guarded<float> zeros(kNf4Block);
  for (int64_t i = 0; i < zeros.size(); ++i) zeros[i] = 0;
  for (const Isa isa : isas_here()) {
    const auto weight = dequantize<float>(quantize(zeros, isa), kNf4Block, isa);
    for (int64_t i = 0; i < kNf4Block; ++i) EXPECT_EQ(weight[i], 0.0F);
  }
}

TEST(Nf4, a_nan_reaches_the_scale_of_its_block_and_of_no_other) {
  Guarded<float> values = random_values<float>(2 * kNf4Block, 5);
  values[3] = std::nanf("");
  for (const Isa isa : isas_here()) {
    const Quantized q = quantize(values, isa);
    EXPECT_TRUE(std::isnan(q.absmax[0]));
    EXPECT_FALSE(std::isnan(q.absmax[1]));
  }
}

TEST(NestedScales, are_within_the_codes_distance_of_the_scales) {
  const auto& map = signed_dynamic_map().value;
  std::vector<float> scales(1000);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 1.0F + std::sin(static_cast<float>(i));
  std::vector<uint8_t> codes(scales.size());
  std::vector<float> absmax(static_cast<size_t>(nf4_nested_blocks(1000)));
  std::vector<float> again(scales.size());
  const float offset = nest_scales(scales, map, codes, absmax);
  unnest_scales(codes, absmax, map, offset, again);
  // Neighbouring codes are at most 1/64 of the range apart.
  for (size_t i = 0; i < scales.size(); ++i)
    EXPECT_NEAR(again[i], scales[i], absmax[i / kNf4NestedBlock] / 128 + 1e-4F);
}

TEST(NestedScales, equal_scales_come_back_exactly) {
  const std::vector<float> scales(300, 0.37F);
  std::vector<uint8_t> codes(300);
  std::vector<float> absmax(2);
  std::vector<float> again(300);
  const auto& map = signed_dynamic_map().value;
  unnest_scales(codes, absmax, map, nest_scales(scales, map, codes, absmax), again);
  EXPECT_EQ(again, scales);
}

TEST(DynamicCode, is_sorted_and_has_no_minus_one) {
  const auto& code = signed_dynamic_map().value;
  EXPECT_TRUE(std::is_sorted(code.begin(), code.end()));
  EXPECT_EQ(code.back(), 1.0F);
  EXPECT_EQ(code[127], 0.0F);
  EXPECT_EQ(code.front(), -0.992968738079071F);
}

}  // namespace
}  // namespace plimsoll
