// Products that sum over the rows of two operands one of which is thin, as the gradients of adapters are:
// packing the wide operand would cost more than the product. A thread walks blocks of its columns; words of
// two rows are made in registers and multiplied by every value of the thin operand, whose words all threads
// share.
#include <omp.h>

#include "cpu/matmul_kernel.h"
#include "cpu/matmul_pack.h"

namespace plimsoll::PLIMSOLL_ISA {
namespace {

constexpr int64_t kWidth = Vec::kWidth;
constexpr int64_t kRows = 64;  // of a block, whose 16 KiB of the wide operand stay in L1
static_assert(kThinColumns % kWidth == 0 && kThinLanes == kWidth);

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

inline Vec words_of(const uint16_t* low, const uint16_t* high, Mask lanes) {
  return pair(load(low, lanes), high == nullptr ? zero() : load(high, lanes));
}

// Words of rows 2 p and 2 p + 1 of the thin operand; a missing last row is zero.
void pack_thin(const ThinTask& task) {
  const int64_t pairs = (task.k + 1) / 2;
  const Mask lanes = first(static_cast<int>(task.thin));
#pragma omp for schedule(static)
  for (int64_t p = 0; p < pairs; ++p) {
    const auto* low = static_cast<const uint16_t*>(task.t) + 2 * p * task.thin;
    store(task.words + p * kThinLanes, words_of(low, 2 * p + 1 < task.k ? low + task.thin : nullptr, lanes));
  }
}

// sums [kThinLanes][kThinColumns] += thin^T wide, over `rows` rows from `row`, of up to kWidth columns.
void add_rows(const ThinTask& task, int64_t row, int64_t rows, int64_t column, Mask lanes, float* sums) {
  Vec sum[kThinLanes];
#pragma GCC unroll 16
  for (int t = 0; t < kThinLanes; ++t) sum[t] = load(sums + t * kThinColumns);
  const uint16_t* x = static_cast<const uint16_t*>(task.x) + row * task.wide + column;
  const float* words = task.words + row / 2 * kThinLanes;
  for (int64_t r = 0; r < rows; r += 2, x += 2 * task.wide, words += kThinLanes) {
    const Vec wide = words_of(x, r + 1 < rows ? x + task.wide : nullptr, lanes);
#pragma GCC unroll 16
    for (int t = 0; t < kThinLanes; ++t)
      sum[t].v = _mm512_dpbf16_ps(sum[t].v, reinterpret_cast<__m512bh>(wide.v),
                                  reinterpret_cast<__m512bh>(set1(words[t]).v));
  }
#pragma GCC unroll 16
  for (int t = 0; t < kThinLanes; ++t) store(sums + t * kThinColumns, sum[t]);
}

// `n` is the column of C.
template <class Out>
void put(const ThinTask& task, Out* c, int64_t n, Vec sum, Mask lanes) {
  Vec value = sum * set1(task.alpha);
  if (task.bias != nullptr) value = value + load(static_cast<const Out*>(task.bias) + n, lanes);
  store(c, task.accumulate ? load(c, lanes) + value : value, lanes);
}

// Sums of up to kWidth columns to C.
template <class Out>
void finish(const ThinTask& task, int64_t column, int columns, const float* sums) {
  Out* c = static_cast<Out*>(task.c);
  if (!task.wide_rows) {
    for (int64_t t = 0; t < task.thin; ++t)
      put(task, c + t * task.wide + column, column, load(sums + t * kThinColumns), first(columns));
    return;
  }
  Vec rows[kThinLanes];
  for (int t = 0; t < kThinLanes; ++t) rows[t] = load(sums + t * kThinColumns);
  transpose(rows);
  for (int i = 0; i < columns; ++i)
    put(task, c + (column + i) * task.thin, 0, rows[i], first(static_cast<int>(task.thin)));
}

template <class Out>
void run_block(const ThinTask& task, int64_t column, float* sums) {
  const int64_t end = smaller(task.wide, column + kThinColumns);
  for (int64_t i = 0; i < kThinLanes * kThinColumns; i += kWidth) store(sums + i, zero());
  for (int64_t row = 0; row < task.k; row += kRows)
    for (int64_t at = column; at < end; at += kWidth)
      add_rows(task, row, smaller(kRows, task.k - row), at,
               first(static_cast<int>(smaller(kWidth, end - at))), sums + at - column);
  for (int64_t at = column; at < end; at += kWidth)
    finish<Out>(task, at, static_cast<int>(smaller(kWidth, end - at)), sums + at - column);
}

}  // namespace

void run_thin(const ThinTask& task) {
#pragma omp parallel num_threads(task.threads) if (task.threads > 1)
  {
    pack_thin(task);
    float* const sums = task.sums + omp_get_thread_num() * kThinLanes * kThinColumns;
#pragma omp for schedule(static)
    for (int64_t column = 0; column < task.wide; column += kThinColumns) {
      if (task.out_bf16)
        run_block<uint16_t>(task, column, sums);
      else
        run_block<float>(task, column, sums);
    }
  }
}

}  // namespace plimsoll::PLIMSOLL_ISA
