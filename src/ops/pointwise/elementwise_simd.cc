#include "ops/pointwise/elementwise_kernels.h"
#include "ops/simd_rows.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

// The piece that one thread takes at a time: 64 KiB of f32 in each operand, a multiple of every vector width.
constexpr int64_t kPiece = 16384;
// Columns are dealt to threads in whole cache lines of either type.
constexpr int64_t kColumnsPerPiece = 64;

int64_t pieces(int64_t count, int64_t piece) { return (count + piece - 1) / piece; }
int64_t piece_length(int64_t count, int64_t piece, int64_t index) {
  const int64_t left = count - index * piece;
  return left < piece ? left : piece;
}

template <class T>
void add_all(const Add<T>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t p = 0; p < pieces(a.count, kPiece); ++p) {
    const int64_t begin = p * kPiece;
    for_lanes(piece_length(a.count, kPiece, p), [&](int64_t i, auto lanes) {
      lanes.put(a.y + begin + i, lanes.get(a.a + begin + i) + lanes.get(a.b + begin + i));
    });
  }
}

template <class To, class From>
void add_row(To* sum, const From* x, int64_t n) {
  for_lanes(n, [&](int64_t i, auto lanes) { lanes.put(sum + i, lanes.get(sum + i) + lanes.get(x + i)); });
}

void clear_row(float* row, int64_t n) {
  for_lanes(n, [&](int64_t i, auto lanes) { lanes.put(row + i, zero()); });
}

template <class T, class G>
void sum_columns(const ColumnSums<T, G>& a) {
  const int64_t blocks = column_sum_blocks(a.rows);
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t b = 0; b < blocks; ++b) {
    float* partial = a.partials + b * a.columns;
    clear_row(partial, a.columns);
    const T* x = a.x + b * kColumnSumRowsPerBlock * a.columns;
    for (int64_t r = 0; r < piece_length(a.rows, kColumnSumRowsPerBlock, b); ++r)
      add_row(partial, x + r * a.columns, a.columns);
  }
  // The first block's sum becomes the whole sum, so that a bf16 gradient is rounded once.
  for (int64_t b = 1; b < blocks; ++b) add_row(a.partials, a.partials + b * a.columns, a.columns);
  for_lanes(a.columns, [&](int64_t i, auto lanes) {
    const Vec sum = lanes.get(a.partials + i);
    lanes.put(a.sums + i, a.accumulate ? lanes.get(a.sums + i) + sum : sum);
  });
}

// Threads split the columns, so that two tokens of one row never meet and each row adds in token order.
template <class T, class G>
void scatter(const ScatterAdd<T, G>& a) {
#pragma omp parallel for schedule(static) num_threads(a.threads)
  for (int64_t p = 0; p < pieces(a.width, kColumnsPerPiece); ++p) {
    const int64_t begin = p * kColumnsPerPiece;
    const int64_t n = piece_length(a.width, kColumnsPerPiece, p);
    for (int64_t i = 0; i < a.count; ++i)
      add_row(a.table + a.ids[i] * a.width + begin, a.x + i * a.width + begin, n);
  }
}

}  // namespace

void add(const Add<float>& a) { add_all(a); }
void add(const Add<uint16_t>& a) { add_all(a); }
void column_sums(const ColumnSums<float, float>& a) { sum_columns(a); }
void column_sums(const ColumnSums<uint16_t, float>& a) { sum_columns(a); }
void column_sums(const ColumnSums<uint16_t, uint16_t>& a) { sum_columns(a); }
void scatter_add(const ScatterAdd<float, float>& a) { scatter(a); }
void scatter_add(const ScatterAdd<uint16_t, float>& a) { scatter(a); }
void scatter_add(const ScatterAdd<uint16_t, uint16_t>& a) { scatter(a); }

}  // namespace plimsoll::PLIMSOLL_ISA
