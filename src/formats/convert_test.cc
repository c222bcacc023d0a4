#include "formats/convert.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace plimsoll {
namespace {

TEST(Convert, every_f16_survives_the_way_through_f32) {
  for (uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const float value = f32_from_f16(static_cast<uint16_t>(bits));
    const uint16_t back = f16_from_f32(value);
    if (std::isnan(value))
      EXPECT_EQ(back, bits | 0x0200U);  // the same NaN, quiet
    else
      EXPECT_EQ(back, bits);
  }
}

TEST(Convert, every_bf16_survives_the_way_through_f32) {
  for (uint32_t bits = 0; bits <= 0xFFFFU; ++bits) {
    const float value = f32_from_bf16(static_cast<uint16_t>(bits));
    const uint16_t back = bf16_from_f32(value);
    if (std::isnan(value))
      EXPECT_EQ(back, bits | 0x0040U);
    else
      EXPECT_EQ(back, bits);
  }
}

// Midway between two neighbours the even one wins; one step of f32 further the nearer one does.
TEST(Convert, f16_rounds_to_nearest_even) {
  for (uint16_t bits = 0; bits < 0x7BFFU; ++bits) {
    const float low = f32_from_f16(bits);
    const auto next = static_cast<uint16_t>(bits + 1);
    const float middle = low + (f32_from_f16(next) - low) / 2;
    EXPECT_EQ(f16_from_f32(middle), bits % 2 == 0 ? bits : next);
    EXPECT_EQ(f16_from_f32(std::nextafter(middle, 0.0F)), bits);
    EXPECT_EQ(f16_from_f32(std::nextafter(middle, 1e9F)), next);
  }
  EXPECT_EQ(f16_from_f32(65519.996F), 0x7BFFU);
  EXPECT_EQ(f16_from_f32(65520.0F), 0x7C00U);
}

TEST(Convert, bf16_rounds_to_nearest_even) {
  EXPECT_EQ(bf16_from_f32(1.0F + 0x1p-8F), 0x3F80U);
  EXPECT_EQ(bf16_from_f32(1.0F + 0x1p-8F + 0x1p-23F), 0x3F81U);
  EXPECT_EQ(bf16_from_f32(1.0F + 3 * 0x1p-8F), 0x3F82U);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7F80U);
}

// The lowest payload bits alone must not become an infinity.
TEST(Convert, nan_with_a_small_payload_stays_nan) {
  const auto nan = std::bit_cast<float>(uint32_t{0x7F80'0001U});
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(nan))));
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(nan))));
}

TEST(Convert, spans_of_every_pair_agree_with_the_single_values) {
  const std::array<float, 4> values = {1.0F, -0.33325195F, 0.0F, -1024.0F};
  for (const DType from : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType to : {DType::f32, DType::bf16, DType::f16}) {
      std::array<std::byte, 16> stored{};
      std::array<std::byte, 16> converted{};
      std::array<float, 4> direct{};
      std::array<float, 4> through{};
      const std::span from_span = std::span(stored).first(static_cast<size_t>(4 * size_of(from)));
      const std::span to_span = std::span(converted).first(static_cast<size_t>(4 * size_of(to)));
      convert(std::as_bytes(std::span(values)), DType::f32, from_span, from);
      convert(from_span, from, to_span, to);
      convert(to_span, to, std::as_writable_bytes(std::span(through)), DType::f32);
      convert(from_span, from, std::as_writable_bytes(std::span(direct)), DType::f32);
      for (size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(through[i], direct[i], std::abs(direct[i]) * 0x1p-8F) << to_string(from) << to_string(to);
      EXPECT_EQ(through[0], 1.0F);
      EXPECT_EQ(through[3], -1024.0F);
    }
  }
}

TEST(Convert, refuses_what_it_has_no_conversion_for) {
  std::array<std::byte, 8> bytes{};
  EXPECT_THROW(convert(std::span(bytes).first(4), DType::i32, std::span(bytes).last(4), DType::f32),
               InternalError);
  EXPECT_THROW(convert(std::span(bytes).first(4), DType::f32, std::span(bytes).last(4), DType::bf16),
               InternalError);
}

}  // namespace
}  // namespace plimsoll
