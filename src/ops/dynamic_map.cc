#include "ops/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr int kExponents = 7;  // decades 1e-6 ... 1

// Midpoints of `items` equal parts of [0.1, 1], computed as torch.linspace does on CPUs with FMA: from both
// ends, in f32, each edge rounded once.
std::vector<float> fractions(int items) {
  const float step = (1.0F - 0.1F) / static_cast<float>(items);
  std::vector<float> edges;
  for (int i = 0; i <= items; ++i)
    edges.push_back(i < (items + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                                        : std::fma(-step, static_cast<float>(items - i), 1.0F));
  std::vector<float> middles;
  for (size_t i = 0; i + 1 < edges.size(); ++i) middles.push_back((edges[i] + edges[i + 1]) / 2.0F);
  return middles;
}

std::array<float, 256> values_of(bool is_signed) {
  constexpr std::array<float, kExponents> kDecades = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1.0F};
  std::vector<float> values = {0.0F, 1.0F};
  for (int i = 0; i < kExponents; ++i) {
    for (const float middle : fractions(1 << (is_signed ? i : i + 1))) {
      values.push_back(kDecades[static_cast<size_t>(i)] * middle);
      if (is_signed) values.push_back(-values.back());
    }
  }
  std::array<float, 256> sorted{};
  check_internal(values.size() == sorted.size(), "dynamic map: wrong number of values");
  std::sort(values.begin(), values.end());
  std::copy(values.begin(), values.end(), sorted.begin());
  return sorted;
}

DynamicMap make_map(bool is_signed) {
  DynamicMap map{};
  map.value = values_of(is_signed);
  for (size_t i = 0; i < 255; ++i) map.bound[i] = (map.value[i] + map.value[i + 1]) / 2.0F;
  map.bound[255] = std::numeric_limits<float>::infinity();
  const auto code_of = [&](uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    return std::lower_bound(map.bound.begin(), map.bound.end() - 1, x) - map.bound.begin();
  };
  constexpr uint32_t kOne = 0x3F80;  // upper 16 bits of 1.0: x is never beyond
  for (const uint32_t sign : {0U, 0x8000U}) {
    for (uint32_t upper = sign; upper <= (sign | kOne); ++upper) {
      const auto a = code_of(upper << 16);
      const auto b = code_of(upper << 16 | 0xFFFF);
      check_internal(std::abs(a - b) <= 1, "dynamic map: two bounds share a cell");
      map.below[upper] = static_cast<uint8_t>(std::min(a, b));
    }
  }
  return map;
}

}  // namespace

const DynamicMap& signed_dynamic_map() {
  static const DynamicMap map = make_map(true);
  return map;
}
const DynamicMap& unsigned_dynamic_map() {
  static const DynamicMap map = make_map(false);
  return map;
}

}  // namespace plimsoll
