// Products of gated linear attention on the GPU: of 64 rows of a chunk, or 64 keys of a state, by up to 64
// columns. A block has four warps, each with 16 of the rows. 16-bit values by tensor cores, f32 by plain
// arithmetic; all sum in f32, and a lane has the same sums in both. Include it only in gla_gpu.cu.
#pragma once

#include "gpu/tensor_core.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kGlaThreads = 128;
inline constexpr int kGlaTile = 64;   // rows of a block's sums
inline constexpr int kGlaDepth = 32;  // of what is summed over, that is brought at a time

template <class T>
inline constexpr int kGlaPack = gpu::Pack<T>::kCount;
// Length of a row of `columns` values in shared memory: 16 bytes more, so that eight rows touch all banks
// once.
template <class T, int kColumns>
inline constexpr int kGlaRow = kColumns + kGlaPack<T>;

// An operand as it is stored; beyond its rows and columns are zeros.
template <class T>
struct GlaMatrix {
  const T* values;
  int64_t stride;
  int rows, columns;
  bool in_packs;  // rows begin at multiples of 16 bytes and have whole packs
};

template <int kRows, int kColumns, class T>
PL_DEV void fetch_part(T* to, const GlaMatrix<T>& from, int row0, int column0) {
  constexpr int kPacks = kColumns / kGlaPack<T>;
  static_assert(kRows * kPacks % kGlaThreads == 0);
  PL_UNROLL
  for (int i = 0; i < kRows * kPacks / kGlaThreads; ++i) {
    const int pack = i * kGlaThreads + static_cast<int>(threadIdx.x);
    const int r = pack / kPacks, c = pack % kPacks * kGlaPack<T>;
    const int row = row0 + r, column = column0 + c;
    T* const at = to + r * kGlaRow<T, kColumns> + c;
    const T* const source = from.values + row * from.stride + column;
    if (from.in_packs) {
      const bool live = row < from.rows && column < from.columns;
      gpu::copy_async(at, live ? source : from.values, live);
      continue;
    }
    gpu::Pack<T> values{};
    PL_UNROLL
    for (int j = 0; j < kGlaPack<T>; ++j)
      if (row < from.rows && column + j < from.columns) values.v[j] = source[j];
    gpu::store_pack(at, values);
  }
}

// Left operands of a warp's product, in shared memory: 16 rows from `row` on. load() is for tensor cores, 16
// of the depth at a time; value() for plain arithmetic.
template <class T, bool kTransposed, int kLength>
struct GlaLeft {
  const T* values;  // transposed: [depth][kLength]
  int row;

  PL_DEV void load(uint32_t (&a)[4], int depth) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kTransposed)
      gpu::load_matrix_transposed(
          a, values + (depth + lane % 8 + lane / 16 * 8) * kLength + row + lane / 8 % 2 * 8);
    else
      gpu::load_matrix(a, values + (row + lane % 16) * kLength + depth + lane / 16 * 8);
  }
  [[nodiscard]] PL_DEV float value(int r, int depth) const {
    return gpu::to_float(kTransposed ? values[depth * kLength + row + r]
                                     : values[(row + r) * kLength + depth]);
  }
};
// The same of values that are kept in f32, and rounded to T where tensor cores take them.
template <class T, bool kTransposed, int kLength>
struct GlaRoundedLeft {
  const float* values;

  [[nodiscard]] PL_DEV float value(int r, int depth) const {
    return kTransposed ? values[depth * kLength + r] : values[r * kLength + depth];
  }
  PL_DEV void load(uint32_t (&a)[4], int depth) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    PL_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int r = lane / 4 + i % 2 * 8, d = depth + lane % 4 * 2 + i / 2 * 8;
      a[i] = gpu::packed<T>(value(r, d), value(r, d + 1));
    }
  }
};
// Right operands, [depth][kLength] or, transposed, [columns][kLength]: 16 columns from `column` on.
template <class T, bool kTransposed, int kLength>
struct GlaRight {
  const T* values;

  PL_DEV void load(uint32_t (&b)[4], int depth, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kTransposed)
      gpu::load_matrix(b, values + (column + lane % 8 + lane / 16 * 8) * kLength + depth + lane / 8 % 2 * 8);
    else
      gpu::load_matrix_transposed(b, values + (depth + lane % 16) * kLength + column + lane / 16 * 8);
  }
  [[nodiscard]] PL_DEV float value(int depth, int column) const {
    return gpu::to_float(kTransposed ? values[column * kLength + depth] : values[depth * kLength + column]);
  }
};

// sums += left right, of a warp: 16 rows, kColumns columns. A lane has of rows lane / 4 and that + 8, and of
// every eight columns two from lane % 4 * 2 on.
template <class T, int kDepth, int kParts, class Left, class Right>
PL_DEV void multiply_part(float (&sums)[kParts][4], const Left& left, const Right& right) {
  if constexpr (sizeof(T) == 2) {
    PL_UNROLL
    for (int d = 0; d < kDepth; d += 16) {
      uint32_t a[4];
      left.load(a, d);
      PL_UNROLL
      for (int j = 0; j < kParts / 2; ++j) {
        uint32_t b[4];
        right.load(b, d, j * 16);
        const uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
        gpu::mma<T>(sums[j * 2], a, first);
        gpu::mma<T>(sums[j * 2 + 1], a, second);
      }
    }
  } else {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int d = 0; d < kDepth; ++d) {
      const float upper = left.value(lane / 4, d), lower = left.value(lane / 4 + 8, d);
      PL_UNROLL
      for (int j = 0; j < kParts; ++j) {
        PL_UNROLL
        for (int c = 0; c < 2; ++c) {
          const float b = right.value(d, j * 8 + lane % 4 * 2 + c);
          sums[j][c] = gpu::fma(upper, b, sums[j][c]);
          sums[j][c + 2] = gpu::fma(lower, b, sums[j][c + 2]);
        }
      }
    }
  }
}

// A block's product, whose operands come through a ring of buffers.
template <class T, bool kLeftTransposed, bool kRightTransposed, int kColumns>
struct GlaProduct {
  static constexpr int kLeftRow = kGlaRow < T, kLeftTransposed ? kGlaTile : kGlaDepth > ;
  static constexpr int kRightRow = kGlaRow < T, kRightTransposed ? kGlaDepth : kColumns > ;
  static constexpr int kLeftValues = (kLeftTransposed ? kGlaDepth : kGlaTile) * kLeftRow;
  static constexpr int kRightValues = (kRightTransposed ? kColumns : kGlaDepth) * kRightRow;
  static constexpr int kStages = sizeof(T) == 2 ? 3 : 2;
  static constexpr int kStageValues = kLeftValues + kRightValues;
  static constexpr int kRingValues = kStages * kStageValues;
  using Sums = float[kColumns / 8][4];

  // Fetches the values that are summed over, from `depth` on.
  static PL_DEV void fetch(T* stage, const GlaMatrix<T>& left, const GlaMatrix<T>& right, int depth) {
    if constexpr (kLeftTransposed)
      fetch_part<kGlaDepth, kGlaTile>(stage, left, depth, 0);
    else
      fetch_part<kGlaTile, kGlaDepth>(stage, left, 0, depth);
    if constexpr (kRightTransposed)
      fetch_part<kColumns, kGlaDepth>(stage + kLeftValues, right, 0, depth);
    else
      fetch_part<kGlaDepth, kColumns>(stage + kLeftValues, right, depth, 0);
  }
  // sums += the products of steps 0 to `steps`. bring(step, stage) fetches one's operands, before(step) comes
  // before its product. The ring is free when it returns.
  template <class Bring, class Before>
  static PL_DEV void add(Sums& sums, T* ring, int steps, Bring bring, Before before) {
    const int row = gpu::warp_of_block() * 16;
    const auto stage_of = [&](int step) { return ring + step % kStages * kStageValues; };
    const auto begin = [&](int step) {
      if (step < steps) bring(step, stage_of(step));
      gpu::commit_copies();  // an empty group keeps the count
    };
    for (int step = 0; step < kStages - 1; ++step) begin(step);
    for (int step = 0; step < steps; ++step) {
      gpu::wait_copies<kStages - 2>();
      __syncthreads();  // the step is there, and everybody has done the one before
      begin(step + kStages - 1);
      before(step);
      const T* const stage = stage_of(step);
      multiply_part<T, kGlaDepth>(sums, GlaLeft<T, kLeftTransposed, kLeftRow>{stage, row},
                                  GlaRight<T, kRightTransposed, kRightRow>{stage + kLeftValues});
    }
    gpu::wait_copies<0>();
    __syncthreads();
  }
  template <class Bring>
  static PL_DEV void add(Sums& sums, T* ring, int steps, Bring bring) {
    add(sums, ring, steps, bring, [](int) {});
  }
};

template <class T>
struct alignas(2 * sizeof(T)) GlaPair {
  T v[2];
};
// Writes a warp's sums from `row0` on; `in_pairs`: rows begin at even values and have an even number of them.
template <int kParts, class T>
PL_DEV void put_sums(const float (&sums)[kParts][4], T* to, int64_t stride, int row0, int rows, int columns,
                     bool in_pairs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PL_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + h * 8;
    if (row >= rows) continue;
    PL_UNROLL
    for (int j = 0; j < kParts; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      T* const at = to + row * stride + column;
      const T values[2] = {gpu::rounded<T>(sums[j][h * 2]), gpu::rounded<T>(sums[j][h * 2 + 1])};
      if (in_pairs && column < columns) *reinterpret_cast<GlaPair<T>*>(at) = {{values[0], values[1]}};
      if (in_pairs) continue;
      if (column < columns) at[0] = values[0];
      if (column + 1 < columns) at[1] = values[1];
    }
  }
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
