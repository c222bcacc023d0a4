#include "ops/linear/dora_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// One row, in pieces that stay in the first cache while all of A goes over them.
template <class T>
float row_length(const DoraNorm<T>& a, int64_t row) {
  constexpr int64_t kPiece = 512;
  float piece[kPiece];
  Vec squares = zero();
  for (int64_t begin = 0; begin < a.in; begin += kPiece) {
    const int64_t count = begin + kPiece < a.in ? kPiece : a.in - begin;
    const T* weight = a.weight + row * a.in + begin;
    for_lanes(count, [&](int64_t i, auto lanes) { lanes.put(piece + i, lanes.get(weight + i)); });
    for (int64_t k = 0; k < a.r; ++k) {
      const Vec factor = set1(a.scale * widen_value(a.b[row * a.r + k]));
      const T* from = a.a + k * a.in + begin;
      for_lanes(count, [&](int64_t i, auto lanes) {
        lanes.put(piece + i, fma(factor, lanes.get(from + i), lanes.get(piece + i)));
      });
    }
    for_lanes(count, [&](int64_t i, auto lanes) {
      const Vec v = lanes.get(piece + i);
      squares = fma(v, v, squares);
    });
  }
  // A row of zeros has a magnitude of 0 and stays one, rather than becoming 0 / 0.
  const float length = __builtin_sqrtf(reduce_add(squares));
  return length < __FLT_MIN__ ? __FLT_MIN__ : length;
}

template <class T>
void norm(const DoraNorm<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.out; ++row) a.lengths[row] = row_length(a, row);
}

template <class T>
void scale_row(const DoraScale<T>& a, int64_t row) {
  const int64_t at = row * a.width;
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    Vec y = lanes.get(a.u + at + i) * (lanes.get(a.magnitude + i) / lanes.get(a.lengths + i));
    if (a.bias != nullptr) y = y + lanes.get(a.bias + i);
    if (a.addend != nullptr) y = y + lanes.get(a.addend + at + i);
    if (a.minus != nullptr) y = y - lanes.get(a.minus + at + i);
    lanes.put(a.y + at + i, y);
  });
}

template <class T>
void scale(const DoraScale<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t row = 0; row < a.rows; ++row) scale_row(a, row);
}

template <class T>
void grad_block(const DoraScaleGrad<T>& a, int64_t block) {
  const int64_t begin = block * kDoraRowsPerBlock;
  const int64_t end = begin + kDoraRowsPerBlock < a.rows ? begin + kDoraRowsPerBlock : a.rows;
  float* sum = a.d_magnitude != nullptr ? a.partials + block * a.width : nullptr;
  if (sum != nullptr) for_lanes(a.width, [&](int64_t i, auto lanes) { lanes.put(sum + i, zero()); });
  for (int64_t row = begin; row < end; ++row)
    for_lanes(a.width, [&](int64_t i, auto lanes) {
      const Vec d_y = lanes.get(a.d_y + row * a.width + i);
      if (sum != nullptr)
        lanes.put(sum + i, fma(d_y, lanes.get(a.u + row * a.width + i), lanes.get(sum + i)));
      if (a.d_u != nullptr)
        lanes.put(a.d_u + row * a.width + i, d_y * (lanes.get(a.magnitude + i) / lanes.get(a.lengths + i)));
    });
}

template <class T>
void grad(const DoraScaleGrad<T>& a) {
  const int64_t blocks = dora_blocks(a.rows);
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t block = 0; block < blocks; ++block) grad_block(a, block);
  if (a.d_magnitude == nullptr) return;
  for_lanes(a.width, [&](int64_t i, auto lanes) {
    Vec sum = zero();
    for (int64_t b = 0; b < blocks; ++b) sum = sum + lanes.get(a.partials + b * a.width + i);
    sum = sum / lanes.get(a.lengths + i);
    if (a.accumulate) sum = sum + lanes.get(a.d_magnitude + i);
    lanes.put(a.d_magnitude + i, sum);
  });
}

}  // namespace

void dora_norm(const DoraNorm<float>& a) { norm(a); }
void dora_norm(const DoraNorm<uint16_t>& a) { norm(a); }
void dora_scale(const DoraScale<float>& a) { scale(a); }
void dora_scale(const DoraScale<uint16_t>& a) { scale(a); }
void dora_scale_grad(const DoraScaleGrad<float>& a) { grad(a); }
void dora_scale_grad(const DoraScaleGrad<uint16_t>& a) { grad(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
