// Raw CPU kernels of halve. The output may be the input.
#pragma once

#include <cstdint>

namespace plimsoll {

// y = x / 2
template <class T>
struct Halve {
  const T* x = nullptr;
  T* y = nullptr;
  int64_t count = 0;
};

#define PLIMSOLL_HALVE_KERNELS(isa)   \
  namespace isa {                     \
  void halve(const Halve<float>&);    \
  void halve(const Halve<uint16_t>&); \
  }
PLIMSOLL_HALVE_KERNELS(avx2)
PLIMSOLL_HALVE_KERNELS(avx512)
PLIMSOLL_HALVE_KERNELS(avx2_f16)
#undef PLIMSOLL_HALVE_KERNELS

}  // namespace plimsoll
