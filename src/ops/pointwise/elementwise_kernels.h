// Raw CPU kernels of sums: of two tensors, of columns, and of rows into the rows of a table. T: type of the
// activations, G: of the gradient summed into. None depends on the number of threads in its bits.
#pragma once

#include <cstdint>

namespace plimsoll {

template <class T>
struct Add {
  const T* a = nullptr;
  const T* b = nullptr;
  T* y = nullptr;  // may be a or b
  int64_t count = 0;
  int threads = 1;
};

// Columns are summed over blocks of that many rows, then over the blocks in order. The rule's scratch follows
// from it.
inline constexpr int64_t kColumnSumRowsPerBlock = 64;
static constexpr int64_t column_sum_blocks(int64_t rows) {
  return (rows + kColumnSumRowsPerBlock - 1) / kColumnSumRowsPerBlock;
}

template <class T, class G>
struct ColumnSums {
  const T* x = nullptr;  // [rows, columns]
  int64_t rows = 0, columns = 0;
  float* partials = nullptr;  // [column_sum_blocks(rows), columns]
  G* sums = nullptr;          // [columns]
  bool accumulate = false;    // sums are added to instead of overwritten
  int threads = 1;
};

// table[ids[i]] += x[i], in the order of i; every id is a row of the table.
template <class T, class G>
struct ScatterAdd {
  const int32_t* ids = nullptr;
  const T* x = nullptr;  // [count, width]
  int64_t count = 0, width = 0;
  G* table = nullptr;
  int threads = 1;
};

#define PLIMSOLL_ELEMENTWISE_KERNELS(isa)                  \
  namespace isa {                                          \
  void add(const Add<float>&);                             \
  void add(const Add<uint16_t>&);                          \
  void column_sums(const ColumnSums<float, float>&);       \
  void column_sums(const ColumnSums<uint16_t, float>&);    \
  void column_sums(const ColumnSums<uint16_t, uint16_t>&); \
  void scatter_add(const ScatterAdd<float, float>&);       \
  void scatter_add(const ScatterAdd<uint16_t, float>&);    \
  void scatter_add(const ScatterAdd<uint16_t, uint16_t>&); \
  }
PLIMSOLL_ELEMENTWISE_KERNELS(avx2)
PLIMSOLL_ELEMENTWISE_KERNELS(avx512)
PLIMSOLL_ELEMENTWISE_KERNELS(avx512_bf16)
PLIMSOLL_ELEMENTWISE_KERNELS(avx2_f16)
#undef PLIMSOLL_ELEMENTWISE_KERNELS

}  // namespace plimsoll
