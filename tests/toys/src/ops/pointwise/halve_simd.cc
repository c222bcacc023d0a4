#include "ops/pointwise/halve_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

template <class T>
void forward(const Halve<T>& a) {
  for_lanes(a.count, [&](int64_t i, auto lanes) { lanes.put(a.y + i, lanes.get(a.x + i) * set1(0.5F)); });
}

}  // namespace

void halve(const Halve<float>& a) { forward(a); }
void halve(const Halve<uint16_t>& a) { forward(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
