// Walking a row in registers: whole ones, then the rest under a mask. Include it only in *_simd.cc files.
#pragma once

#include "cpu/simd.h"

namespace plimsoll::PLIMSOLL_ISA {

// Loads and stores of one register at a fixed place, masked or not.
struct Whole {
  template <class T>
  Vec get(const T* p) const {
    return load(p);
  }
  template <class T>
  void put(T* p, Vec x) const {
    store(p, x);
  }
};
struct Rest {
  Mask mask;
  template <class T>
  Vec get(const T* p) const {
    return load(p, mask);
  }
  template <class T>
  void put(T* p, Vec x) const {
    store(p, x, mask);
  }
};

// visit(i, lanes) for i = 0, width, 2 * width, ...; lanes.get and lanes.put touch only elements below n, and
// lanes read beyond it are zero.
template <class Visit>
inline void for_lanes(int64_t n, Visit visit) {
  int64_t i = 0;
  for (; i + Vec::kWidth <= n; i += Vec::kWidth) visit(i, Whole{});
  if (i < n) visit(i, Rest{first(static_cast<int>(n - i))});
}

// The value a T would hold: a half rounds, f32 does not.
inline Vec rounded_as(Vec x, const float*) { return x; }
inline Vec rounded_as(Vec x, const uint16_t*) { return round_to_half(x); }

}  // namespace plimsoll::PLIMSOLL_ISA
