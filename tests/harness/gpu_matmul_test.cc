// Matrix products of the emulated card against plain loops: tails of tiles, rows that do not count, gradients
// that are added to.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/tensor_core.h"
#include "ops/linear/gpu_matmul.h"

namespace plimsoll {
namespace {

using gpu::bf16;
using gpu::emulated::Order;

constexpr float kAlpha = 0.5F;
// The value of memory that nothing may write to or read: it would show as NaN.
constexpr float kUntouched = NAN;

struct Form {
  bool a_transposed, b_transposed;
};
constexpr Form kForms[] = {{false, true}, {false, false}, {true, false}};

template <class T>
DType dtype_of() {
  return sizeof(T) == 2 ? DType::bf16 : DType::f32;
}

template <class T, class C>
class Product {
 public:
  Product(int64_t m, int64_t n, int64_t k, Form form)
      : m_(m),
        n_(n),
        k_(k),
        form_(form),
        a(random<T>(m * k)),
        b(random<T>(k * n)),
        c(random<C>(m * n)),
        bias(random<C>(n)) {}

  [[nodiscard]] GpuMatmul arguments() {
    return {.shape = {m_, n_, k_, dtype_of<T>(), dtype_of<T>(), dtype_of<C>(), form_.a_transposed,
                      form_.b_transposed},
            .a = a.data(),
            .b = b.data(),
            .c = c.data(),
            .bias = bias.data(),
            .alpha = kAlpha};
  }
  // The sum of the first `depth` values.
  [[nodiscard]] double sum(int64_t i, int64_t j, int64_t depth) const {
    double total = 0;
    for (int64_t l = 0; l < depth; ++l)
      total += double{gpu::to_float(form_.a_transposed ? a[at(l * m_ + i)] : a[at(i * k_ + l)])} *
               double{gpu::to_float(form_.b_transposed ? b[at(j * k_ + l)] : b[at(l * n_ + j)])};
    return total * double{kAlpha} + double{gpu::to_float(bias[at(j)])};
  }
  void expect_near(int64_t i, int64_t j, double want) const {
    const double unit = sizeof(C) == 2 ? 0x1p-8 : 2e-5;
    const double got = gpu::to_float(c[at(i * n_ + j)]);
    EXPECT_LE(std::abs(got - want), unit * (std::abs(want) + 1)) << "row " << i << ", column " << j;
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  template <class E>
  static std::vector<E> random(int64_t count) {
    static std::mt19937 generator(11);
    std::normal_distribution<float> normal;
    std::vector<E> values(at(count));
    for (E& x : values) x = gpu::rounded<E>(normal(generator));
    return values;
  }

  int64_t m_, n_, k_;
  Form form_;

 public:
  std::vector<T> a, b;
  std::vector<C> c, bias;
};

void launch(const GpuMatmul& matmul, Order order) {
  gpu::Stream stream;
  gpu::emulated::settings() = {.order = order};
  launch_matmul(stream, matmul);
}

template <class Types>
class GpuMatmulOf : public ::testing::Test {};
template <class A, class B>
struct Pair {
  using T = A;
  using C = B;
};
using Types = ::testing::Types<Pair<float, float>, Pair<bf16, bf16>, Pair<bf16, float>>;
TYPED_TEST_SUITE(GpuMatmulOf, Types);

// Rows of 16 bytes and others, less than a tile and more.
TYPED_TEST(GpuMatmulOf, tiles_and_their_tails_are_right) {
  constexpr int64_t kShapes[][3] = {{9, 17, 24}, {130, 72, 200}, {33, 3, 65}, {65, 136, 40}};
  for (const auto& [m, n, k] : kShapes)
    for (const Form form : kForms) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
      Product<typename TypeParam::T, typename TypeParam::C> product(m, n, k, form);
      launch(product.arguments(), Order::shuffled);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) product.expect_near(i, j, product.sum(i, j, k));
    }
}

// Two wide tiles of rows and columns, of which the second is cut.
TYPED_TEST(GpuMatmulOf, wide_tiles_give_the_bits_of_the_others) {
  using C = typename TypeParam::C;
  constexpr int64_t kShapes[][3] = {{130, 200, 104}, {40, 137, 33}};
  for (const auto& [m, n, k] : kShapes)
    for (const Form form : kForms) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
      Product<typename TypeParam::T, C> product(m, n, k, form);
      GpuMatmul arguments = product.arguments();
      std::vector<C> results[2];
      for (const int tile : {64, 128}) {
        arguments.tile = tile;
        std::fill(product.c.begin(), product.c.end(), gpu::rounded<C>(kUntouched));
        launch(arguments, Order::shuffled);
        for (int64_t i = 0; i < m; i += 7)
          for (int64_t j = 0; j < n; j += 5) product.expect_near(i, j, product.sum(i, j, k));
        results[tile / 128] = product.c;
      }
      EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(C)), 0);
    }
}

TYPED_TEST(GpuMatmulOf, rows_that_do_not_count_are_neither_read_nor_written) {
  using T = typename TypeParam::T;
  using C = typename TypeParam::C;
  constexpr int64_t kM = 72, kN = 40, kK = 96;
  for (const int64_t live : {0, 7, 50, 70})
    for (const Form form : kForms) {
      SCOPED_TRACE(live);
      Product<T, C> product(kM, kN, kK, form);
      const int64_t width = form.a_transposed ? kM : kK;
      for (size_t i = static_cast<size_t>(live * width); i < product.a.size(); ++i)
        product.a[i] = gpu::rounded<T>(kUntouched);
      for (size_t i = static_cast<size_t>(live * kN); form.a_transposed && i < product.b.size(); ++i)
        product.b[i] = gpu::rounded<T>(kUntouched);
      for (C& x : product.c) x = gpu::rounded<C>(kUntouched);
      const auto listed = static_cast<int32_t>(live + 100);
      GpuMatmul arguments = product.arguments();
      arguments.live = {.listed = &listed, .begin = 100};
      launch(arguments, Order::reverse);
      const int64_t rows = form.a_transposed ? kM : live, depth = form.a_transposed ? live : kK;
      for (int64_t i = 0; i < kM; ++i)
        for (int64_t j = 0; j < kN; ++j) {
          if (i < rows)
            product.expect_near(i, j, product.sum(i, j, depth));
          else
            EXPECT_TRUE(std::isnan(gpu::to_float(product.c[static_cast<size_t>(i * kN + j)])));
        }
    }
}

// A second pair of operands, of less than a step of the depth and of several, in tiles of either size.
TYPED_TEST(GpuMatmulOf, riders_are_summed_with_the_product) {
  using T = typename TypeParam::T;
  using C = typename TypeParam::C;
  if constexpr (std::is_same_v<T, C>) {
    constexpr int64_t kShapes[][5] = {{9, 17, 24, 5, 9}, {130, 200, 104, 16, 130}, {40, 137, 33, 70, 23}};
    constexpr float kAdapterAlpha = 1.25F;
    for (const auto& [m, n, k, r, live] : kShapes)
      for (const Form form : {kForms[0], kForms[1]})
        for (const int tile : {64, 128}) {
          SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
          Product<T, C> product(m, n, k, form), adapter(m, n, r, form);
          std::fill(adapter.bias.begin(), adapter.bias.end(), gpu::rounded<C>(0));
          std::fill(adapter.a.begin() + live * r, adapter.a.end(), gpu::rounded<T>(kUntouched));
          const std::vector<C> before = product.c;
          const auto listed = static_cast<int32_t>(live);
          GpuMatmul arguments = product.arguments();
          arguments.shape.adapter = r;
          arguments.adapter_a = adapter.a.data();
          arguments.adapter_b = adapter.b.data();
          arguments.adapter_alpha = kAdapterAlpha;
          arguments.addend = product.c.data();
          arguments.tile = tile;
          arguments.live = {.listed = &listed, .begin = 0};
          launch(arguments, Order::shuffled);
          for (int64_t i = 0; i < live; ++i)
            for (int64_t j = 0; j < n; ++j)
              product.expect_near(i, j,
                                  product.sum(i, j, k) + adapter.sum(i, j, r) / kAlpha * kAdapterAlpha +
                                      double{gpu::to_float(before[static_cast<size_t>(i * n + j)])});
        }
  }
}

// As the instruction rounds: 10 bits of mantissa, to nearest, ties away from zero.
TEST(GpuMatmulTf32, values_are_rounded_to_ten_bits_of_mantissa) {
  const auto cut = [](float x) { return gpu::as_float(gpu::to_tf32(x)); };
  EXPECT_EQ(cut(1.0F), 1.0F);
  EXPECT_EQ(cut(1.0F + 0x1p-10F), 1.0F + 0x1p-10F);
  EXPECT_EQ(cut(1.0F + 0x1p-12F), 1.0F);
  EXPECT_EQ(cut(1.0F + 0x1p-11F), 1.0F + 0x1p-10F);    // a tie
  EXPECT_EQ(cut(-1.0F - 0x1p-11F), -1.0F - 0x1p-10F);  // away from zero
  EXPECT_EQ(cut(1.0F + 0x1.8p-10F), 1.0F + 0x1p-9F);   // not to even
  EXPECT_EQ(cut(2.0F - 0x1p-12F), 2.0F);               // into the next exponent
  EXPECT_EQ(cut(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(cut(NAN)));
  EXPECT_EQ(cut(0.0F), 0.0F);
}

// The sum of products of rounded values, and not of the values: tails of tiles and rows that do not count
// included.
TEST(GpuMatmulTf32, products_are_those_of_rounded_values) {
  constexpr int64_t kShapes[][3] = {{9, 17, 24}, {33, 3, 65}, {65, 72, 40}};
  for (const auto& [m, n, k] : kShapes)
    for (const Form form : kForms) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k));
      Product<float, float> product(m, n, k, form);
      const Product<float, float> exact = product;
      GpuMatmul arguments = product.arguments();
      arguments.tf32 = true;
      launch(arguments, Order::shuffled);
      for (std::vector<float>* values : {&product.a, &product.b})
        for (float& x : *values) x = gpu::as_float(gpu::to_tf32(x));
      double off = 0;
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          product.expect_near(i, j, product.sum(i, j, k));
          off = std::max(off, std::abs(product.sum(i, j, k) - exact.sum(i, j, k)));
        }
      EXPECT_GT(off, 1e-4);
    }
}

TEST(GpuMatmulTf32, rows_that_do_not_count_are_neither_read_nor_written) {
  constexpr int64_t kM = 72, kN = 40, kK = 96, kLive = 50;
  for (const Form form : kForms) {
    Product<float, float> product(kM, kN, kK, form);
    const auto listed = int32_t{kLive};
    const int64_t width = form.a_transposed ? kM : kK;
    for (size_t i = static_cast<size_t>(kLive * width); i < product.a.size(); ++i) product.a[i] = kUntouched;
    for (float& x : product.c) x = kUntouched;
    GpuMatmul arguments = product.arguments();
    arguments.tf32 = true;
    arguments.live = {.listed = &listed, .begin = 0};
    launch(arguments, Order::reverse);
    for (int64_t i = 0; i < kM; ++i)
      EXPECT_EQ(std::isnan(product.c[static_cast<size_t>(i * kN)]), !form.a_transposed && i >= kLive) << i;
  }
}

TYPED_TEST(GpuMatmulOf, gradients_are_overwritten_in_the_first_micro_step_and_added_to_later) {
  using C = typename TypeParam::C;
  constexpr int64_t kM = 20, kN = 30, kK = 40;
  for (const double first : {1.0, 0.0}) {
    Product<typename TypeParam::T, C> product(kM, kN, kK, {true, false});
    const std::vector<C> before = product.c;
    double step[kNumStepValues] = {};
    step[static_cast<size_t>(StepValue::first_micro_step)] = first;
    GpuMatmul arguments = product.arguments();
    arguments.addend = product.c.data();
    arguments.accumulation = {0, step};
    launch(arguments, Order::forward);
    for (int64_t i = 0; i < kM; ++i)
      for (int64_t j = 0; j < kN; ++j) {
        const double added =
            first == 1.0 ? 0.0 : double{gpu::to_float(before[static_cast<size_t>(i * kN + j)])};
        product.expect_near(i, j, product.sum(i, j, kK) + added);
      }
  }
}

}  // namespace
}  // namespace plimsoll
