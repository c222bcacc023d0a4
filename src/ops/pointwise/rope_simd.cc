#include "ops/pointwise/rope_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

template <class T>
void rotate_token(const Rope<T>& a, int64_t token) {
  const int64_t half = a.rotary / 2;
  const float* cosines = a.table + token * a.rotary;
  const float* sines = cosines + half;
  const Vec sign = set1(a.inverse ? -1.0F : 1.0F);
  for (int64_t head = 0; head < a.heads; ++head) {
    const int64_t at = (token * a.heads + head) * a.head_dim;
    for_lanes(half, [&](int64_t i, auto lanes) {
      const Vec c = lanes.get(cosines + i);
      const Vec s = lanes.get(sines + i) * sign;
      const Vec low = lanes.get(a.x + at + i);
      const Vec high = lanes.get(a.x + at + half + i);
      lanes.put(a.y + at + i, low * c - high * s);
      lanes.put(a.y + at + half + i, high * c + low * s);
    });
    if (a.y == a.x) continue;
    for_lanes(a.head_dim - a.rotary, [&](int64_t i, auto lanes) {
      lanes.put(a.y + at + a.rotary + i, lanes.get(a.x + at + a.rotary + i));
    });
  }
}

template <class T>
void rotate(const Rope<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t token = 0; token < a.tokens; ++token) rotate_token(a, token);
}

}  // namespace

void rope(const Rope<float>& a) { rotate(a); }
void rope(const Rope<uint16_t>& a) { rotate(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
