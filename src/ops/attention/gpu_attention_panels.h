// The products of attention without tensor cores (ops/attention/gpu_attention_plain.h): scores [64 rows, 64
// columns] of a block of 128 threads, 8 rows and 4 columns each, and panels of 64 rows and 32 of their
// values, which come to shared memory as f32, two at a time while the two before are multiplied. A thread
// reads 12 times 16 bytes for 128 multiplications. Include it only in attention_gpu.cu and
// attention_trees_gpu.cu.
#pragma once

#include "gpu/tensor_core.h"
#include "ops/attention/gpu_attention.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {

inline constexpr int kPlainThreads = 128;
inline constexpr int kPlainTile = 64;                 // rows, and columns, of scores
inline constexpr int kPlainRows = 8, kPlainKeys = 4;  // that a thread has of them
inline constexpr int kPanelValues = 32;               // of a row
inline constexpr int kPanel = kPlainTile * kPanelValues;
inline constexpr int kScores = kPlainTile * kPlainTile;

// Sixteen threads lie side by side. A warp's rows, two of eight, are its own.
PL_DEV int plain_x() { return static_cast<int>(threadIdx.x) % 16; }
PL_DEV int plain_y() { return static_cast<int>(threadIdx.x) / 16; }
PL_DEV int plain_row(int i) { return plain_y() + i * 8; }
PL_DEV int plain_column(int j) { return plain_x() + j * 16; }

// A thread's part of scores, and of as many rows of 64 of a head's values: those from 4 plain_x() on.
using PlainPart = float[kPlainRows][kPlainKeys];

// The place of chunk c, of four values, in a panel's row: chunks are rotated by the row, so that eight rows
// touch all banks once. Begins at `panel_place(row, 0) ^ 4 c`.
PL_DEV int panel_place(int row, int chunk) { return row * kPanelValues + ((chunk ^ row) & 7) * 4; }
// The same of scores: two rows that are neighbours.
PL_DEV int score_place(int row, int chunk) { return row * kPlainTile + (chunk ^ ((row & 1) * 4)) * 4; }

// Rows of a matrix from `from` on; those beyond `count` are not there.
template <class T>
struct RowsOf {
  const T* from;
  int64_t stride;
  int count;

  [[nodiscard]] PL_DEV const T* row(int i) const { return from + i * stride; }
};
// Rows of which a panel takes the values `value` to that + 31. Values beyond the rows, or beyond `dim`, are
// zero.
template <class Rows>
struct PanelOf {
  Rows rows;
  int value, dim;

  [[nodiscard]] PL_DEV bool has(int row, int at) const { return row < rows.count && value + at < dim; }
  [[nodiscard]] PL_DEV auto place(int row, int at) const { return rows.row(row) + value + at; }
};
template <class Rows>
struct PanelPair {
  PanelOf<Rows> first, second;
};

// Panels on their way to shared memory. f32 is copied during the computation ...
template <class T>
struct PanelInFlight {
  template <class Rows>
  PL_DEV void start(const PanelOf<Rows>& panel, float* to) {
    const int chunk = static_cast<int>(threadIdx.x) % 8, first = static_cast<int>(threadIdx.x) / 8;
    PL_UNROLL
    for (int i = 0; i < kPanel / 4 / kPlainThreads; ++i) {
      const int row = first + i * (kPlainThreads / 8);
      gpu::copy_async(to + panel_place(row, chunk), panel.place(row, chunk * 4), panel.has(row, chunk * 4));
    }
  }
  PL_DEV void land(float*) const {}
};
// ... 16-bit values wait in registers until they are widened.
template <class T>
requires(sizeof(T) == 2) struct PanelInFlight<T> {
  static constexpr int kPacks = kPanel / 8 / kPlainThreads;
  gpu::Pack<T> packs[kPacks];

  static PL_DEV int row_of(int i) { return static_cast<int>(threadIdx.x) / 4 + i * (kPlainThreads / 4); }
  static PL_DEV int pack_of_row() { return static_cast<int>(threadIdx.x) % 4; }

  template <class Rows>
  PL_DEV void start(const PanelOf<Rows>& panel, float*) {
    PL_UNROLL
    for (int i = 0; i < kPacks; ++i)
      packs[i] = panel.has(row_of(i), pack_of_row() * 8)
                     ? gpu::load_pack(panel.place(row_of(i), pack_of_row() * 8))
                     : gpu::Pack<T>{};
  }
  PL_DEV void land(float* to) const {
    PL_UNROLL
    for (int i = 0; i < kPacks; ++i) {
      PL_UNROLL
      for (int half = 0; half < 2; ++half) {
        gpu::Pack<float> wide;
        PL_UNROLL
        for (int v = 0; v < 4; ++v) wide.v[v] = gpu::to_float(packs[i].v[half * 4 + v]);
        gpu::store_pack(to + panel_place(row_of(i), pack_of_row() * 2 + half), wide);
      }
    }
  }
};

// Two buffers of two panels each.
template <class T>
class PanelPairs {
 public:
  static constexpr int kFloats = 4 * kPanel;

  PL_DEV explicit PanelPairs(float* buffers) : buffers_(buffers) {}

  // Fetches the panels that take() gives next. The other two, which were taken last, may still be read.
  template <class Rows>
  PL_DEV void bring(const PanelPair<Rows>& pair) {
    first_.start(pair.first, coming());
    second_.start(pair.second, coming() + kPanel);
    gpu::commit_copies();
  }
  // The two that were brought, behind one another. All threads meet here: what was taken before, and scores
  // that were written before, are theirs from here on.
  PL_DEV const float* take() {
    float* const pair = coming();
    first_.land(pair);
    second_.land(pair + kPanel);
    gpu::wait_copies<0>();
    __syncthreads();
    odd_ = !odd_;
    return pair;
  }

 private:
  [[nodiscard]] PL_DEV float* coming() const { return buffers_ + (odd_ ? 2 * kPanel : 0); }

  float* buffers_;
  bool odd_ = false;
  PanelInFlight<T> first_, second_;
};

// scores += rows of `left` times rows of `right`, over 32 of their values in order.
PL_DEV void multiply_panels(PlainPart& scores, const float* left, const float* right) {
  const int left_at = panel_place(plain_row(0), 0), right_at = panel_place(plain_column(0), 0);
  PL_UNROLL_TWO
  for (int chunk = 0; chunk < kPanelValues / 4; ++chunk) {
    gpu::Pack<float> b[kPlainKeys];
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j)
      b[j] = gpu::load_pack(right + (right_at ^ chunk * 4) + j * 16 * kPanelValues);
    PL_UNROLL
    for (int i = 0; i < kPlainRows; ++i) {
      const gpu::Pack<float> a = gpu::load_pack(left + (left_at ^ chunk * 4) + i * 8 * kPanelValues);
      PL_UNROLL
      for (int v = 0; v < 4; ++v) {
        PL_UNROLL
        for (int j = 0; j < kPlainKeys; ++j) scores[i][j] = gpu::fma(a.v[v], b[j].v[v], scores[i][j]);
      }
    }
  }
}
// sums += scores of the thread's rows times the rows of a pair of panels, which have 64 values together; over
// the rows in order.
PL_DEV void multiply_scores(PlainPart& sums, const float* scores, const float* pair) {
  const int own = plain_x() % 8 * 4, scores_at = score_place(plain_row(0), 0);
  pair += plain_x() / 8 * kPanel;
  PL_UNROLL_TWO
  for (int row = 0; row < kPlainTile; row += 4) {
    gpu::Pack<float> b[4];
    PL_UNROLL
    for (int r = 0; r < 4; ++r)
      b[r] = gpu::load_pack(pair + (row + r) * kPanelValues + (own ^ (row % 8 + r) * 4));
    PL_UNROLL
    for (int i = 0; i < kPlainRows; ++i) {
      const gpu::Pack<float> a = gpu::load_pack(scores + (scores_at ^ row) + i * 8 * kPlainTile);
      PL_UNROLL
      for (int r = 0; r < 4; ++r) {
        PL_UNROLL
        for (int v = 0; v < 4; ++v) sums[i][v] = gpu::fma(a.v[r], b[r].v[v], sums[i][v]);
      }
    }
  }
}
// Scores to where multiply_scores() reads them. Of the warp's lanes all have to be done with those before.
PL_DEV void put_scores(float* to, const PlainPart& scores) {
  const int at = score_place(plain_row(0), plain_x() / 4) + plain_x() % 4;
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j) to[(at ^ j * 16) + i * 8 * kPlainTile] = scores[i][j];
  }
}
// The thread's own, as it put them.
PL_DEV void get_scores(PlainPart& scores, const float* from) {
  const int at = score_place(plain_row(0), plain_x() / 4) + plain_x() % 4;
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    PL_UNROLL
    for (int j = 0; j < kPlainKeys; ++j) scores[i][j] = from[(at ^ j * 16) + i * 8 * kPlainTile];
  }
}
// Sums, each row's times its factor, to rows of which the first `rows` and `columns` are there.
template <class T>
PL_DEV void put_sums(T* to, int64_t stride, int rows, int columns, const PlainPart& sums,
                     const float (&factors)[kPlainRows]) {
  struct alignas(4 * sizeof(T)) Four {
    T v[4];
  };
  const int column = plain_x() * 4;
  if (column >= columns) return;
  PL_UNROLL
  for (int i = 0; i < kPlainRows; ++i) {
    if (plain_row(i) >= rows) continue;
    Four four;
    PL_UNROLL
    for (int v = 0; v < 4; ++v) four.v[v] = gpu::rounded<T>(sums[i][v] * factors[i]);
    *reinterpret_cast<Four*>(to + plain_row(i) * stride + column) = four;
  }
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
