// Blocked matmul after Goto and van de Geijn (2008): B is packed once per block and shared, each thread packs
// its rows of A, and a register tile of C runs over a whole block of k.
#include <omp.h>

#include "cpu/matmul_kernel.h"
#if defined(PLIMSOLL_ISA_amx)
#include "cpu/matmul_tile_amx.h"
#else
#include "cpu/matmul_tile.h"
#endif

namespace plimsoll::PLIMSOLL_ISA {
namespace {

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Range {
  int64_t begin, end;
};
// Part `index` of `parts` near-equal parts of [0, count).
inline Range part(int64_t count, int64_t index, int64_t parts) {
  return {count * index / parts, count * (index + 1) / parts};
}

// One thread's view of a task; In and Out are float or uint16_t (bf16).
template <class In, class Out>
class Worker {
 public:
  Worker(const MatmulTask& task, int thread, int threads)
      : task_(task),
        thread_(thread),
        threads_(threads),
        packed_a_(task.packed_a + thread * task.packed_a_stride),
        panel_(task.blocks.k / kPerStep * kLanes) {}

  void run() {
    for (int64_t n = 0; n < task_.n; n += task_.blocks.n)
      for (int64_t m = 0; m < task_.m; m += task_.blocks.m) run_block(m, n);
  }

 private:
  // Place of a block of C and of k.
  struct Block {
    int64_t m, rows, n, columns, k, depth;
    bool first, last;
    [[nodiscard]] int64_t steps() const { return ceil_div(depth, kPerStep); }
  };

  void run_block(int64_t m, int64_t n) {
    int64_t k = 0;
    do {  // once even when no k is live: C still gets its bias or zeros
      const int64_t depth = smaller(task_.blocks.k, task_.k - k);
      const Block block = {m,      smaller(task_.blocks.m, task_.m - m),
                           n,      smaller(task_.blocks.n, task_.n - n),
                           k,      depth,
                           k == 0, k + depth == task_.k};
      pack_b(block);
#pragma omp barrier
      multiply(block);
#pragma omp barrier
      k += depth;
    } while (k < task_.k);
  }

  void pack_b(const Block& block) {
    const Range strips = part(ceil_div(block.columns, kLanes), thread_, threads_);
    const int64_t packed =
        reads_b(block) ? block.columns / kColumns * 2 : 0;  // strips of whole panels are not
    for (int64_t s = packed > strips.begin ? packed : strips.begin; s < strips.end; ++s) {
      const int64_t column = block.n + s * kLanes;
      const int64_t stride = task_.b_stride;
      const In* data = static_cast<const In*>(task_.b) +
                       (task_.b_transposed ? column * stride + block.k : block.k * stride + column);
      const auto lanes = static_cast<int>(smaller(kLanes, block.n + block.columns - column));
      pack_columns(Strip<In>{data, stride, !task_.b_transposed, lanes, block.depth},
                   task_.packed_b + s / 2 * 2 * panel_ + s % 2 * kLanes);
    }
  }

  void pack_a(const Block& block, int64_t row, int64_t rows, float* out) {
    const int64_t stride = task_.a_stride;
    for (int64_t begin = 0; begin < rows; begin += kLanes, out += panel_) {
      const int64_t at = row + begin;
      const In* data = static_cast<const In*>(task_.a) +
                       (task_.a_transposed ? block.k * stride + at : at * stride + block.k);
      const auto lanes = static_cast<int>(smaller(kLanes, rows - begin));
      pack_rows(Strip<In>{data, stride, task_.a_transposed, lanes, block.depth}, out);
    }
  }

  // The threads form a grid over panels of rows and of columns, chosen so that the largest share is smallest.
  void multiply(const Block& block) {
    const int64_t row_panels = ceil_div(block.rows, kTile.rows);
    const int64_t column_panels = ceil_div(block.columns, kColumns);
    int64_t grid_rows = 1;
    int64_t least = INT64_MAX;
    for (int64_t r = threads_; r >= 1; --r) {
      const int64_t share = ceil_div(row_panels, r) * ceil_div(column_panels, threads_ / r);
      if (share < least) {
        least = share;
        grid_rows = r;
      }
    }
    const int64_t grid_columns = threads_ / grid_rows;
    if (thread_ >= grid_rows * grid_columns) return;
    const Range columns = part(column_panels, thread_ % grid_columns, grid_columns);
    const Range rows = part(row_panels, thread_ / grid_columns, grid_rows);
    for (int64_t p = rows.begin; p < rows.end; p += task_.blocks.panels)
      multiply_panels(block, {p, smaller(p + task_.blocks.panels, rows.end)}, columns);
  }

#if defined(PLIMSOLL_ISA_avx512_bf16)
  static constexpr bool kReads = false;
#else
  static constexpr bool kReads = sizeof(In) == sizeof(float);
#endif
  // An operand that meets few rows or columns is read where it lies: packing it would take as long as the
  // sums.
  [[nodiscard]] bool reads_a(Range column_panels) const {
    // Of a transposed one 14 rows are a line of the cache or two, each in a page of its own.
    constexpr bool kTransposed = kTile.rows <= 8;
    return kReads && (kTransposed || !task_.a_transposed) &&
           column_panels.end - column_panels.begin <= kFewPanels;
  }
  [[nodiscard]] bool reads_b(const Block& block) const {
    return kReads && !task_.b_transposed && ceil_div(block.rows, kTile.rows) <= kFewPanels;
  }
  static constexpr int64_t kFewPanels = 3;

  // A tile of operands of which one at least is not packed. (Packed rows that are no rows of A are zeros.)
  struct Place {
    int64_t row_panel, column_panel, columns;
    bool a_lies, b_lies;
  };
  void read_panel([[maybe_unused]] const Block& block, [[maybe_unused]] const Place& at,
                  [[maybe_unused]] const Panels& packed, [[maybe_unused]] float* products) {
#if !defined(PLIMSOLL_ISA_avx512_bf16)
    if constexpr (kReads) {
      Strides place{1, kLanes, kColumns};
      const float *a = packed.a, *b = packed.b;
      if (at.a_lies) {
        const int64_t row = block.m + at.row_panel * kTile.rows, stride = task_.a_stride;
        place.a_row = task_.a_transposed ? 1 : stride;
        place.a_step = task_.a_transposed ? stride : 1;
        a = static_cast<const float*>(task_.a) + row * place.a_row + block.k * place.a_step;
      }
      if (at.b_lies) {
        place.b_step = task_.b_stride;
        b = static_cast<const float*>(task_.b) + block.k * task_.b_stride + block.n +
            at.column_panel * kColumns;
      }
      if (at.columns > kLanes)
        multiply_tile<kTile.rows, 2>(block.steps(), a, b, products, place);
      else
        multiply_tile<kTile.rows, 1>(block.steps(), a, b, products, place);
    }
#endif
  }

  // Inner loops: the packed panels of A stay in L2, one panel of B passes over all of them.
  void multiply_panels(const Block& block, Range row_panels, Range column_panels) {
    const bool may_read_a = reads_a(column_panels), may_read_b = reads_b(block);
    for (int64_t p = row_panels.begin; p < row_panels.end; ++p) {
      const int64_t row = p * kTile.rows;
      if (may_read_a && block.rows - row >= kTile.rows) continue;
      pack_a(block, block.m + row, smaller(kTile.rows, block.rows - row),
             packed_a_ + (p - row_panels.begin) * kStrips * panel_);
    }
    alignas(64) float products[kTile.rows * kColumns];
    for (int64_t q = column_panels.begin; q < column_panels.end; ++q) {
      const int64_t columns = smaller(kColumns, block.columns - q * kColumns);
      for (int64_t p = row_panels.begin; p < row_panels.end; ++p) {
        const int64_t rows = smaller(kTile.rows, block.rows - p * kTile.rows);
        const float* a = packed_a_ + (p - row_panels.begin) * kStrips * panel_;
        const float* b = task_.packed_b + q * 2 * panel_;
        prefetch(block, p * kTile.rows, rows, q * kColumns);
        const bool a_lies = may_read_a && rows == kTile.rows, b_lies = may_read_b && columns == kColumns;
        if (a_lies || b_lies)
          read_panel(block, {p, q, columns, a_lies, b_lies}, {a, panel_, b}, products);
        else
          multiply_panel(rows, columns, block.steps(), {a, panel_, b}, products);
        finish(block, p * kTile.rows, rows, q * kColumns, columns, products);
      }
    }
  }

  // What finish() will touch comes into the cache while the tile is computed: its rows lie far apart, and
  // their misses took a fifth of the time.
  void prefetch(const Block& block, int64_t i, int64_t rows, int64_t j) {
    constexpr int64_t kLine = 64, kShort = 64;
    if (kTile.rows > 8 && block.steps() < kShort) return;  // more lines than there is time for
    const bool sums = sizeof(Out) != sizeof(float) && !(block.first && block.last);
    const Out* c = static_cast<const Out*>(task_.c) + (block.m + i) * task_.n + block.n + j;
    for (int64_t row = 0; row < rows; ++row, c += task_.n) {
      const char* at =
          reinterpret_cast<const char*>(sums ? task_.sums + (i + row) * task_.blocks.n + j : nullptr);
      if (!sums) at = reinterpret_cast<const char*>(c);
      const int64_t bytes = kColumns * static_cast<int64_t>(sums ? sizeof(float) : sizeof(Out));
      for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(at + byte, 1);
    }
  }

  // Takes the products of `rows` from `i` and columns from `j` of a block into C. A bf16 C is rounded once:
  // its sums over blocks of k wait in f32. An f32 C is its own sum.
  void finish(const Block& block, int64_t i, int64_t rows, int64_t j, int64_t columns,
              const float* products) {
    const bool own_sum = sizeof(Out) == sizeof(float);
    const bool opens = own_sum ? block.first : block.last;  // the one block that brings bias and old C
    const Out* bias =
        opens && task_.bias != nullptr ? static_cast<const Out*>(task_.bias) + block.n + j : nullptr;
    const bool adds = !opens || task_.accumulate;
    const Vec alpha = set1(task_.alpha);
    Out* c = static_cast<Out*>(task_.c) + (block.m + i) * task_.n + block.n + j;
    float* sums = own_sum ? nullptr : task_.sums + i * task_.blocks.n + j;
    for (int64_t row = 0; row < rows; ++row, c += task_.n, products += kColumns) {
      for (int64_t at = 0; at < columns; at += kLanes) {
        const auto lanes = static_cast<int>(smaller(kLanes, columns - at));
        Vec value = load(products + at);
        if (!own_sum) {
          float* sum = sums + row * task_.blocks.n + at;
          if (!block.first) value = value + load(sum);
          if (!block.last) {
            store(sum, value);
            continue;
          }
        }
        value = value * alpha;
        if (bias != nullptr) value = value + load_first(bias + at, lanes);
        if (adds) value = load_first(c + at, lanes) + value;
        if (lanes == kLanes)
          store(c + at, value);
        else
          store(c + at, value, first(lanes));
      }
    }
  }

  const MatmulTask& task_;
  int thread_;
  int threads_;
  float* packed_a_;
  int64_t panel_;  // floats of one packed strip of kLanes lanes
};

template <class In, class Out>
void run_threads(const MatmulTask& task) {
#pragma omp parallel num_threads(task.threads) if (task.threads > 1)
  {
#if defined(PLIMSOLL_ISA_amx)
    const TileRegisters registers;
#endif
    Worker<In, Out>(task, omp_get_thread_num(), omp_get_num_threads()).run();
  }
}

template <class In>
void run_inputs(const MatmulTask& task) {
  if (task.out_halves)
    run_threads<In, uint16_t>(task);
  else
    run_threads<In, float>(task);
}

}  // namespace

void run_matmul(const MatmulTask& task) {
#if !defined(PLIMSOLL_ISA_avx512_bf16)  // which is defined beside PLIMSOLL_ISA_amx, too
  if (!task.in_halves) return run_inputs<float>(task);
#endif
  run_inputs<uint16_t>(task);
}

}  // namespace plimsoll::PLIMSOLL_ISA
