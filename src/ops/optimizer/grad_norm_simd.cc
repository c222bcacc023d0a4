#include "ops/optimizer/grad_norm_kernels.h"

#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// In f64: squares of gradients neither overflow nor vanish.
#if defined(PLIMSOLL_ISA_avx512)
struct SquareSum {
  __m512d low = _mm512_setzero_pd();
  __m512d high = _mm512_setzero_pd();
  void add(Vec x) {
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
    const __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
    low = _mm512_fmadd_pd(a, a, low);
    high = _mm512_fmadd_pd(b, b, high);
  }
  [[nodiscard]] double total() const { return _mm512_reduce_add_pd(_mm512_add_pd(low, high)); }
};
#else
struct SquareSum {
  __m256d low = _mm256_setzero_pd();
  __m256d high = _mm256_setzero_pd();
  void add(Vec x) {
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  [[nodiscard]] double total() const {
    alignas(32) double lanes[4];
    _mm256_store_pd(lanes, _mm256_add_pd(low, high));
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  }
};
#endif

template <class T>
double square_sum(const SumOfSquares<T>& a) {
  const int64_t blocks = (a.count + kSumOfSquaresBlock - 1) / kSumOfSquaresBlock;
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * kSumOfSquaresBlock;
    const int64_t count = a.count - begin < kSumOfSquaresBlock ? a.count - begin : kSumOfSquaresBlock;
    SquareSum sum;
    for_lanes(count, [&](int64_t i, auto lanes) { sum.add(lanes.get(a.x + begin + i)); });
    a.partials[block] = sum.total();
  }
  double total = a.before;
  for (int64_t block = 0; block < blocks; ++block) total += a.partials[block];
  return total;
}

}  // namespace

double sum_of_squares(const SumOfSquares<float>& a) { return square_sum(a); }
double sum_of_squares(const SumOfSquares<uint16_t>& a) { return square_sum(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
