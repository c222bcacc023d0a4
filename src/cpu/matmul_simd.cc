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
// Share `index` of `parts` near-equal ones of [0, count).
inline Range share(int64_t count, int64_t index, int64_t parts) {
  return {count * index / parts, count * (index + 1) / parts};
}

// A whole tile of C from registers, as Worker::finish() takes what is not whole.
template <class Out>
struct ToC {
  Out* c;
  int64_t stride;
  const Out* bias;  // or null
  float alpha;
  bool adds;

  void fetch() const {
    constexpr int kLine = 64 / sizeof(Out);
#pragma GCC unroll 16
    for (int i = 0; i < kTile.rows; ++i)
      for (int j = 0; j < kColumns; j += kLine) __builtin_prefetch(c + i * stride + j, 1);
  }
  void operator()(Vec (&sum)[kTile.rows][2]) const {
    const Vec factor = set1(alpha);
    each(sum, [&](Vec& v, int, int) { v = v * factor; });
    if (bias != nullptr) each(sum, [&](Vec& v, int, int j) { v = v + load(bias + j * kLanes); });
    if (adds) each(sum, [&](Vec& v, int i, int j) { v = load(c + i * stride + j * kLanes) + v; });
    each(sum, [&](const Vec& v, int i, int j) { store(c + i * stride + j * kLanes, v); });
  }

 private:
  template <class Change>
  static void each(Vec (&sum)[kTile.rows][2], const Change& change) {
#pragma GCC unroll 16
    for (int i = 0; i < kTile.rows; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j) change(sum[i][j], i, j);
  }
};

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
    const int64_t end = task_.k + task_.adapter;
    int64_t k = 0;
    do {  // once even when no k is live: C still gets its bias or zeros
      const int64_t depth = smaller(task_.blocks.k, end - k);
      const Block block = {m,      smaller(task_.blocks.m, task_.m - m),
                           n,      smaller(task_.blocks.n, task_.n - n),
                           k,      depth,
                           k == 0, k + depth == end};
      pack_b(block);
#pragma omp barrier
      multiply(block);
#pragma omp barrier
      k += depth;
    } while (k < end);
  }

  // One pair of operands' part of a block of k, from `k` of its own on; as packed it begins at `step`.
  struct Part {
    const void *a, *b;
    int64_t a_stride, b_stride;
    int64_t k, depth, step;
    float scale;  // of b
  };
  [[nodiscard]] Part main_part(const Block& block) const {
    const int64_t left = task_.k - block.k;
    return {
        task_.a, task_.b, task_.a_stride, task_.b_stride, block.k, left > 0 ? smaller(block.depth, left) : 0,
        0,       1.0F};
  }
  [[nodiscard]] Part adapter_part(const Block& block) const {
    const int64_t before = smaller(block.depth, task_.k > block.k ? task_.k - block.k : 0);
    return {task_.adapter_a,
            task_.adapter_b,
            task_.adapter,
            task_.b_transposed ? task_.adapter : task_.n,
            block.k > task_.k ? block.k - task_.k : 0,
            block.depth - before,
            before,
            task_.adapter_scale};
  }
  [[nodiscard]] bool has_adapter(const Block& block) const { return block.k + block.depth > task_.k; }

  void pack_b(const Block& block) {
    const Part main = main_part(block), adapter = adapter_part(block);
    if (main.depth > 0) pack_b(block, main);
    if (adapter.depth > 0) pack_b(block, adapter);
  }

  void pack_b(const Block& block, const Part& part) {
    constexpr int64_t kUnit = kFetches ? 2 : 1;  // strips of whole panels are a thread's, or single ones
    const int64_t count = ceil_div(block.columns, kLanes);
    Range strips = share(ceil_div(count, kUnit), thread_, threads_);
    strips = {strips.begin * kUnit, smaller(strips.end * kUnit, count)};
    const int64_t packed =
        reads_b(block) ? block.columns / kColumns * 2 : 0;  // strips of whole panels are not
    int64_t s = packed > strips.begin ? packed : strips.begin;
    const Range packs = {s, strips.end};
    if constexpr (kFetches) s = pack_panels(block, part, s, strips.end);
    for (; s < strips.end; ++s) {
      const int64_t column = block.n + s * kLanes;
      const auto lanes = static_cast<int>(smaller(kLanes, block.n + block.columns - column));
      pack_columns(Strip<In>{b_at(part, column), part.b_stride, !task_.b_transposed, lanes, part.depth},
                   strip_at(part, s));
    }
    if (part.scale != 1.0F) scale(part, packs);
  }

  [[nodiscard]] float* strip_at(const Part& part, int64_t strip) const {
    return task_.packed_b + strip / 2 * 2 * panel_ + strip % 2 * kLanes + part.step * kColumns;
  }
  void scale(const Part& part, Range strips) {
    const Vec factor = set1(part.scale);
    for (int64_t s = strips.begin; s < strips.end; ++s) {
      float* at = strip_at(part, s);
      for (int64_t step = 0; step < part.depth; ++step, at += kColumns) store(at, load(at) * factor);
    }
  }

  // Whole panels of B from strip `s` on, a line of the cache at a time; the strip behind them.
  int64_t pack_panels(const Block& block, const Part& part, int64_t s, int64_t end) {
    const int64_t whole = smaller(end, block.columns / kLanes), stride = part.b_stride, k = part.depth;
    const auto take = [&](int64_t strips, auto pack_some) {
      for (; s + strips <= whole; s += strips) pack_some(b_at(part, block.n + s * kLanes), strip_at(part, s));
    };
    if (task_.b_transposed) {
      take(2, [&](const In* from, float* to) { pack_turned(k, from, stride, to); });
    } else {
      take(8, [&](const In* from, float* to) { pack_wide<4>(k, from, stride, to, 2 * panel_); });
      take(2, [&](const In* from, float* to) { pack_wide<1>(k, from, stride, to, 2 * panel_); });
    }
    return s;
  }

  [[nodiscard]] const In* b_at(const Part& part, int64_t column) const {
    return static_cast<const In*>(part.b) +
           (task_.b_transposed ? column * part.b_stride + part.k : part.k * part.b_stride + column);
  }

  void pack_a(const Block& block, int64_t row, int64_t rows, float* out) {
    const Part main = main_part(block), adapter = adapter_part(block);
    if (main.depth > 0) pack_a(main, row, rows, out);
    if (adapter.depth > 0) pack_a(adapter, row, rows, out + adapter.step * kStepOfA);
  }
  void pack_a(const Part& part, int64_t row, int64_t rows, float* out) {
    const int64_t stride = part.a_stride;
    for (int64_t begin = 0; begin < rows; begin += kLanes, out += panel_) {
      const int64_t at = row + begin;
      const In* data =
          static_cast<const In*>(part.a) + (task_.a_transposed ? part.k * stride + at : at * stride + part.k);
      const auto lanes = static_cast<int>(smaller(kLanes, rows - begin));
      pack_rows(Strip<In>{data, stride, task_.a_transposed, lanes, part.depth}, out);
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
    const Range columns = share(column_panels, thread_ % grid_columns, grid_columns);
    const Range rows = share(row_panels, thread_ / grid_columns, grid_rows);
    for (int64_t p = rows.begin; p < rows.end; p += task_.blocks.panels)
      multiply_panels(block, {p, smaller(p + task_.blocks.panels, rows.end)}, columns);
  }

#if defined(PLIMSOLL_ISA_avx512_bf16)
  static constexpr bool kReads = false;
#else
  static constexpr bool kReads = sizeof(In) == sizeof(float);
#endif
  // An operand that meets few rows or columns is read where it lies: packing it would take as long as the
  // sums. A block of two pairs of operands lies nowhere as one.
  [[nodiscard]] bool reads_a(const Block& block, Range column_panels) const {
    // 14 rows of a transposed operand are a line of the cache or two, each in a page of its own.
    constexpr bool kTransposed = kTile.rows <= 8;
    return kReads && !has_adapter(block) && (kTransposed || !task_.a_transposed) &&
           column_panels.end - column_panels.begin <= kFewPanels;
  }
  [[nodiscard]] bool reads_b(const Block& block) const {
    return kReads && !has_adapter(block) && !task_.b_transposed &&
           ceil_div(block.rows, kTile.rows) <= kFewPanels;
  }
  static constexpr int64_t kFewPanels = 3;
  static constexpr bool kOwnSum = sizeof(Out) == sizeof(float);  // an f32 C is

  // A tile of C, and which of its operands lie as they came. (Packed rows that are no rows of A are zeros.)
  struct Tile {
    int64_t row, rows, column, columns;  // within the block
    Panels packed;
    bool a_lies, b_lies;
    [[nodiscard]] bool lies() const { return a_lies || b_lies; }
    [[nodiscard]] bool whole() const { return rows == kTile.rows && columns == kColumns; }
  };

  // From there on, `step` floats further with each step.
  static Ahead fetch(const float* from, int64_t step) {
    return {reinterpret_cast<const char*>(from), step * static_cast<int64_t>(sizeof(float))};
  }

  // Inner loops: the packed panels of A stay in L2, one panel of B passes over all of them.
  void multiply_panels(const Block& block, Range row_panels, Range column_panels) {
    const bool may_read_a = reads_a(block, column_panels), may_read_b = reads_b(block);
    for (int64_t p = row_panels.begin; p < row_panels.end; ++p) {
      const int64_t row = p * kTile.rows;
      if (may_read_a && block.rows - row >= kTile.rows) continue;
      pack_a(block, block.m + row, smaller(kTile.rows, block.rows - row),
             packed_a_ + (p - row_panels.begin) * kStrips * panel_);
    }
    const auto tile = [&](int64_t p, int64_t q) {
      const int64_t row = p * kTile.rows, rows = smaller(kTile.rows, block.rows - row);
      const int64_t column = q * kColumns, columns = smaller(kColumns, block.columns - column);
      const float* a = packed_a_ + (p - row_panels.begin) * kStrips * panel_;
      return Tile{row,
                  rows,
                  column,
                  columns,
                  {a, panel_, task_.packed_b + q * 2 * panel_},
                  may_read_a && rows == kTile.rows,
                  may_read_b && columns == kColumns};
    };
    if (kFetches && block.steps() <= kShort) {  // along the rows of C, which is most of what is touched
      for (int64_t p = row_panels.begin; p < row_panels.end; ++p)
        for (int64_t q = column_panels.begin; q < column_panels.end; ++q)
          run_tile(block, tile(p, q), fetch(task_.packed_b, 0));
      return;
    }
    // The tiles of a panel of B share in fetching the next one.
    const int64_t of_next = kColumns / (row_panels.end - row_panels.begin);
    for (int64_t q = column_panels.begin; q < column_panels.end; ++q) {
      const float* next =
          task_.packed_b + (q + 1 < column_panels.end ? q + 1 : column_panels.begin) * 2 * panel_;
      for (int64_t p = row_panels.begin; p < row_panels.end; ++p, next += block.steps() * of_next)
        run_tile(block, tile(p, q), fetch(next, of_next));
    }
  }

  void run_tile(const Block& block, const Tile& tile, [[maybe_unused]] Ahead ahead) {
    alignas(64) float products[kTile.rows * kColumns];
#if !defined(PLIMSOLL_ISA_avx512_bf16)
    if constexpr (kFetches) {
      if (tile.whole() && (kOwnSum || (block.first && block.last)))
        return multiply_whole<2>(
            block, tile, ahead,
            ToC<Out>{c_at(block, tile), task_.n, bias_at(block, tile), task_.alpha, adds(block)});
    }
#endif
    prefetch(block, tile);
#if !defined(PLIMSOLL_ISA_avx512_bf16)
    if (tile.lies()) {
      if (tile.columns > kLanes)
        multiply_whole<2>(block, tile, ahead, ToProducts{products});
      else
        multiply_whole<1>(block, tile, ahead, ToProducts{products});
      return finish(block, tile, products);
    }
#endif
    multiply_panel(tile.rows, tile.columns, block.steps(), tile.packed, products);
    finish(block, tile, products);
  }

#if !defined(PLIMSOLL_ISA_avx512_bf16)
  // All rows of a tile, wherever its operands lie.
  template <int kVectors, class Take>
  void multiply_whole(const Block& block, const Tile& tile, Ahead ahead, const Take& take) {
    const float *a = tile.packed.a, *b = tile.packed.b;
    if (!tile.lies()) return multiply_tile<kTile.rows, kVectors>(block.steps(), a, b, Packed{}, ahead, take);
    if constexpr (kReads) {
      Strides place{1, Packed::a_step, kColumns};
      if (tile.a_lies) {
        const int64_t row = block.m + tile.row, stride = task_.a_stride;
        place.a_row = task_.a_transposed ? 1 : stride;
        place.a_step = task_.a_transposed ? stride : 1;
        a = static_cast<const float*>(task_.a) + row * place.a_row + block.k * place.a_step;
        if (task_.a_transposed) ahead = fetch(a + kTile.rows + kColumns, stride);
      }
      if (tile.b_lies) {
        place.b_step = task_.b_stride;
        b = static_cast<const float*>(task_.b) + block.k * task_.b_stride + block.n + tile.column;
        ahead = fetch(b + kColumns, task_.b_stride);
      }
      multiply_tile<kTile.rows, kVectors>(block.steps(), a, b, place, ahead, take);
    }
  }
#endif

  // The memory that finish() will touch is prefetched into the cache while the tile is computed: its rows lie
  // far apart, and their misses took a fifth of the time.
  void prefetch(const Block& block, const Tile& tile) {
    constexpr int64_t kLine = 64;
    if (kTile.rows > 8 && block.steps() < kShort) return;  // more lines than there is time for
    const bool sums = !kOwnSum && !(block.first && block.last);
    const Out* c = c_at(block, tile);
    for (int64_t row = 0; row < tile.rows; ++row, c += task_.n) {
      const char* at = reinterpret_cast<const char*>(
          sums ? task_.sums + (tile.row + row) * task_.blocks.n + tile.column : nullptr);
      if (!sums) at = reinterpret_cast<const char*>(c);
      const int64_t bytes = kColumns * static_cast<int64_t>(sums ? sizeof(float) : sizeof(Out));
      for (int64_t byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(at + byte, 1);
    }
  }

  // Takes the products of a tile into C. A bf16 C is rounded once: its sums over blocks of k wait in f32. An
  // f32 C is its own sum.
  void finish(const Block& block, const Tile& tile, const float* products) {
    const Out* bias = bias_at(block, tile);
    const bool adds = this->adds(block);
    const Vec alpha = set1(task_.alpha);
    Out* c = c_at(block, tile);
    float* sums = kOwnSum ? nullptr : task_.sums + tile.row * task_.blocks.n + tile.column;
    for (int64_t row = 0; row < tile.rows; ++row, c += task_.n, products += kColumns) {
      for (int64_t at = 0; at < tile.columns; at += kLanes) {
        const auto lanes = static_cast<int>(smaller(kLanes, tile.columns - at));
        Vec value = load(products + at);
        if (!kOwnSum) {
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

  [[nodiscard]] Out* c_at(const Block& block, const Tile& tile) const {
    return static_cast<Out*>(task_.c) + (block.m + tile.row) * task_.n + block.n + tile.column;
  }
  // One block of k brings bias and old C.
  static bool opens(const Block& block) { return kOwnSum ? block.first : block.last; }
  [[nodiscard]] const Out* bias_at(const Block& block, const Tile& tile) const {
    return opens(block) && task_.bias != nullptr ? static_cast<const Out*>(task_.bias) + block.n + tile.column
                                                 : nullptr;
  }
  [[nodiscard]] bool adds(const Block& block) const { return !opens(block) || task_.accumulate; }

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
#if !defined(PLIMSOLL_ISA_avx512_bf16)  // which is defined together with PLIMSOLL_ISA_amx, too
  if (!task.in_halves) return run_inputs<float>(task);
#endif
  run_inputs<uint16_t>(task);
}

}  // namespace plimsoll::PLIMSOLL_ISA
