#include "device/rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

MatmulGrid grid_of(double small, double large) {
  return {.form = {}, .m = {16, 64}, .n = {128}, .k = {256}, .flop_rates = {small, large}};
}

double rate_of(const DeviceRates& rates, const MatmulShape& shape) {
  return 2.0 * static_cast<double>(shape.m * shape.n * shape.k) / matmul_seconds(rates, shape);
}

TEST(Rates, a_measured_shape_has_its_measured_rate) {
  DeviceRates rates;
  rates.matmuls = {grid_of(1e9, 4e9)};
  EXPECT_NEAR(rate_of(rates, {.m = 16, .n = 128, .k = 256}), 1e9, 1);
  EXPECT_NEAR(rate_of(rates, {.m = 64, .n = 128, .k = 256}), 4e9, 4);
}

TEST(Rates, between_two_shapes_logarithms_are_interpolated) {
  DeviceRates rates;
  rates.matmuls = {grid_of(1e9, 4e9)};
  EXPECT_NEAR(rate_of(rates, {.m = 32, .n = 128, .k = 256}), 2e9, 2);
}

TEST(Rates, beyond_the_grid_its_edge_holds) {
  DeviceRates rates;
  rates.matmuls = {grid_of(1e9, 4e9)};
  EXPECT_NEAR(rate_of(rates, {.m = 4096, .n = 4096, .k = 4096}), 4e9, 4);
  EXPECT_NEAR(rate_of(rates, {.m = 1, .n = 1, .k = 1}), 1e9, 1);
}

TEST(Rates, thin_products_of_bf16_take_their_arithmetic_at_the_rate_of_vectors) {
  DeviceRates rates;
  rates.matmul_bf16 = 1e12;
  rates.vector_bf16 = 1e9;
  rates.bandwidth = 1e15;
  const MatmulShape thin{
      .m = 64, .n = 16, .k = 512, .a = DType::bf16, .b = DType::bf16, .a_transposed = true};
  EXPECT_NEAR(rate_of(rates, thin), 1e9, 1e6);
  MatmulShape wide = thin;
  wide.n = 17;
  MatmulShape forward = thin;
  forward.a_transposed = false;
  for (const MatmulShape& tiles : {wide, forward}) EXPECT_NEAR(rate_of(rates, tiles), 1e12, 1e10);
}

TEST(Rates, a_form_that_was_not_measured_takes_its_arithmetic_and_its_bytes) {
  DeviceRates rates;
  rates.matmuls = {grid_of(1e9, 4e9)};
  rates.matmul_f32 = 1e12;
  rates.bandwidth = 1e10;
  const MatmulShape square{.m = 4096, .n = 4096, .k = 4096, .a_transposed = true};
  EXPECT_NEAR(matmul_seconds(rates, square),
              2.0 * std::pow(4096.0, 3) / 1e12 + 3 * 4.0 * std::pow(4096.0, 2) / 1e10, 1e-9);
  const MatmulShape thin{.m = 4096, .n = 4096, .k = 1, .a_transposed = true};
  EXPECT_NEAR(matmul_seconds(rates, thin),
              4.0 * (4096.0 * 4096.0 + 2 * 4096.0) / 1e10 + 2.0 * 4096 * 4096 / 1e12, 1e-9);
}

TEST(Rates, f16_has_the_rates_of_f32_or_on_cards_of_bf16) {
  DeviceRates rates;
  rates.matmul_f32 = 1e11;
  rates.matmul_bf16 = 4e11;
  rates.bandwidth = 1e15;
  const MatmulShape shape{.m = 1000, .n = 1000, .k = 1000, .a = DType::f16, .b = DType::f16, .c = DType::f16};
  EXPECT_NEAR(matmul_seconds(rates, shape), 2e9 / 1e11, 1e-6);
  rates.of_card = true;
  EXPECT_NEAR(matmul_seconds(rates, shape), 2e9 / 4e11, 1e-6);
}

// Kernels of CPUs sum it in the same visit of C; on cards it is a product of its own behind a library's.
TEST(Rates, a_rider_is_more_of_the_depth_or_on_cards_one_more_product) {
  DeviceRates rates;
  rates.matmul_f32 = rates.matmul_bf16 = 1e11;
  rates.bandwidth = 1e10;
  MatmulShape shape{.m = 1000, .n = 1000, .k = 1000}, deeper = shape, adapter = shape;
  shape.adapter = adapter.k = 16;
  deeper.k = 1016;
  EXPECT_EQ(matmul_seconds(rates, shape), matmul_seconds(rates, deeper));
  rates.of_card = true;
  MatmulShape alone = shape;
  alone.adapter = 0;
  EXPECT_NEAR(matmul_seconds(rates, shape),
              matmul_seconds(rates, alone) + matmul_seconds(rates, adapter) + 4e6 / 1e10, 1e-12);
}

TEST(Rates, no_product_is_faster_than_the_smallest_op) {
  DeviceRates rates;
  rates.op_overhead = 1e-3;
  EXPECT_EQ(matmul_seconds(rates, {.m = 1, .n = 1, .k = 1}), 1e-3);
}

TEST(Rates, the_curve_of_the_type_and_the_nearest_head_size_is_taken) {
  DeviceRates rates;
  rates.ops = {{"attention", DType::bf16, 64, {{128, 1}}},
               {"attention", DType::f32, 64, {{128, 2}}},
               {"attention", DType::f32, 128, {{128, 3}}}};
  EXPECT_EQ(find_curve(rates, "attention", DType::f32, 128), &rates.ops[2]);
  EXPECT_EQ(find_curve(rates, "attention", DType::f32, 80), &rates.ops[1]);
  EXPECT_EQ(find_curve(rates, "attention", DType::bf16, 128), &rates.ops[0]);
  EXPECT_EQ(find_curve(rates, "swiglu", DType::f32), nullptr);
}

TEST(Rates, a_curve_is_read_between_its_points_in_logarithms) {
  const RateCurve curve{"add", DType::f32, 0, {{1e3, 1e9}, {1e5, 1e11}}};
  EXPECT_NEAR(rate_at(curve, 1e4), 1e10, 10);
  EXPECT_NEAR(rate_at(curve, 1), 1e9, 1);
  EXPECT_NEAR(rate_at(curve, 1e9), 1e11, 100);
}

TEST(Rates, what_cannot_be_a_measurement_is_a_fault) {
  EXPECT_EQ(fault_of(DeviceRates{}), "");
  DeviceRates rates;
  rates.matmuls = {grid_of(1e9, 0)};
  EXPECT_NE(fault_of(rates), "");
  rates.matmuls = {grid_of(1e9, 2e9)};
  rates.matmuls[0].m = {64, 16};
  EXPECT_NE(fault_of(rates), "");
  rates.matmuls[0].m = {16};
  EXPECT_NE(fault_of(rates), "");
  rates.matmuls.clear();
  rates.ops = {{"add", DType::f32, 0, {}}};
  EXPECT_NE(fault_of(rates), "");
  rates.ops.clear();
  rates.bandwidth = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(fault_of(rates), "");
}

}  // namespace
}  // namespace plimsoll
