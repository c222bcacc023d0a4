// The 8-bit dynamic map and three steps of 8-bit AdamW, held against what bitsandbytes computed
// (tests/golden/optimizers; written by tests/parity/optimizers.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

#include "ops/kernel_test_util.h"
#include "ops/optimizer/adamw8bit_kernels.h"

namespace plimsoll {
namespace {

constexpr int64_t kElements = 3 * kStateBlock;

struct Golden {
  std::vector<float> signed_map, unsigned_map, weight;
  std::vector<uint8_t> m, v;
  std::vector<float> m_scales, v_scales;
};

template <class T>
std::vector<T> read_line(std::istream& in) {
  std::string line;
  while (std::getline(in, line) && line.starts_with('#')) continue;
  std::istringstream words(line);
  std::vector<T> values;
  for (std::string word; words >> word;) values.push_back(static_cast<T>(std::stod(word)));
  return values;
}

Golden read_golden() {
  std::ifstream in("tests/golden/optimizers/adamw8bit.txt");
  EXPECT_TRUE(in) << "run the test from the repository's root";
  Golden golden;
  golden.signed_map = read_line<float>(in);
  golden.unsigned_map = read_line<float>(in);
  golden.weight = read_line<float>(in);
  golden.m = read_line<uint8_t>(in);
  golden.v = read_line<uint8_t>(in);
  golden.m_scales = read_line<float>(in);
  golden.v_scales = read_line<float>(in);
  return golden;
}

TEST(DynamicMap, has_the_values_of_bitsandbytes) {
  const Golden golden = read_golden();
  EXPECT_TRUE(std::equal(golden.signed_map.begin(), golden.signed_map.end(),
                         signed_dynamic_map().value.begin(), signed_dynamic_map().value.end()));
  EXPECT_TRUE(std::equal(golden.unsigned_map.begin(), golden.unsigned_map.end(),
                         unsigned_dynamic_map().value.begin(), unsigned_dynamic_map().value.end()));
}

TEST(DynamicMap, one_comparison_after_the_table_finds_the_nearest_value) {
  for (const DynamicMap* map : {&signed_dynamic_map(), &unsigned_dynamic_map()}) {
    const auto code_of = [&](float x) {
      const uint8_t below = map->below[std::bit_cast<uint32_t>(x) >> 16];
      return below + (x > map->bound[below] ? 1 : 0);
    };
    for (int i = 0; i < 256; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(code_of(map->value[at]), i);
      if (i == 255) continue;
      EXPECT_EQ(code_of(map->bound[at]), i) << "a tie goes to the lower code";
      EXPECT_EQ(code_of(std::nextafter(map->bound[at], 2.0F)), i + 1);
    }
  }
}

// As golden_inputs() of tests/parity/optimizers.py.
float weight_at(int64_t i) { return static_cast<float>(i * 7919 % 2003 - 1001) / 1024; }
float gradient_at(int64_t step, int64_t i) {
  const auto whole = static_cast<double>((i * 104729 + step * 15485863) % 4001 - 2000);
  return static_cast<float>(whole / (4096 * std::exp2(static_cast<double>(i % 13))));
}

TEST(AdamW8bit, gives_the_weights_codes_and_scales_of_bitsandbytes) {
  const Golden golden = read_golden();
  for (const Isa isa : kernel_test::isas_here()) {
    std::vector<float> weight(kElements);
    std::vector<float> gradient(kElements);
    std::vector<uint8_t> m(kElements);
    std::vector<uint8_t> v(kElements);
    std::vector<float> m_scales(3);
    std::vector<float> v_scales(3);
    for (int64_t i = 0; i < kElements; ++i) weight[static_cast<size_t>(i)] = weight_at(i);
    AdamW8bit<float, float> a{.update = {.step = {.learning_rate = 1e-3, .weight_decay = 0.1},
                                         .weight = weight.data(),
                                         .gradient = gradient.data(),
                                         .count = kElements,
                                         .threads = 2},
                              .m = {&signed_dynamic_map(), m.data(), m_scales.data()},
                              .v = {&unsigned_dynamic_map(), v.data(), v_scales.data()}};
    for (int64_t step = 0; step < 3; ++step) {
      for (int64_t i = 0; i < kElements; ++i) gradient[static_cast<size_t>(i)] = gradient_at(step, i);
      a.update.step.step = step + 1;
      isa == Isa::avx2 ? avx2::adamw8bit(a) : avx512::adamw8bit(a);
    }
    EXPECT_EQ(weight, golden.weight);
    EXPECT_EQ(m, golden.m);
    EXPECT_EQ(v, golden.v);
    EXPECT_EQ(m_scales, golden.m_scales);
    EXPECT_EQ(v_scales, golden.v_scales);
  }
}

}  // namespace
}  // namespace plimsoll
