#include "ops/linear/gpu_matmul.h"

#include <string>
#include <utility>

#include "gpu/tensor_core.h"
#include "ops/gpu_dispatch.h"

namespace plimsoll {
inline namespace PLIMSOLL_GPU {
namespace {

using gpu::Pack;

// A tile of C is 64 x 64, or where tensor cores have enough of it 128 x 128.
constexpr int kTile = 64, kWideTile = 128;

// A matrix as it is stored; rows beyond `rows` read as zeros.
template <class T>
struct Stored {
  const T* values;
  int64_t rows, columns;
  bool in_packs;  // rows begin at multiples of 16 bytes

  [[nodiscard]] PL_DEV bool has(int64_t row, int64_t column) const { return row < rows && column < columns; }
  [[nodiscard]] PL_DEV T at(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

template <class T, class C>
struct Arguments {
  Stored<T> a, b;
  C* c;
  const C* addend;
  const C* bias;
  int64_t m, n, k;
  bool in_pairs;  // rows of C, the addend and the bias begin at even values
  float alpha;
  LiveRows live;
  Accumulation accumulation;
  Stored<T> adapter_a, adapter_b;  // summed first
  int64_t adapter;
  float adapter_scale;  // beside alpha
};

// Cuts the operands to what is live; false where the block has nothing to do.
template <bool kATransposed, int kSide = kTile, class T, class C>
PL_DEV bool cut_to_live(Arguments<T, C>& g) {
  const int64_t live = g.live.of(g.a.rows);
  g.a.rows = live;
  if (g.addend != nullptr && !g.accumulation.adds()) g.addend = nullptr;
  if (!kATransposed) {
    g.m = live;
    g.adapter_a.rows = live;
    return int64_t{blockIdx.y} * kSide < live;
  }
  g.b.rows = live;
  g.k = live;
  return live > 0 || g.addend != g.c;
}

template <class T, class C>
PL_DEV void put(const Arguments<T, C>& g, int64_t row, int64_t column, float sum) {
  if (row >= g.m || column >= g.n) return;
  const int64_t at = row * g.n + column;
  float value = sum * g.alpha;
  if (g.bias != nullptr) value += gpu::to_float(g.bias[column]);
  if (g.addend != nullptr) value += gpu::to_float(g.addend[at]);
  g.c[at] = gpu::rounded<C>(value);
}

// The same of two neighbours of a row, where rows of C begin at even values: one load of each operand, one
// store.
template <class T, class C>
PL_DEV void put_pair(const Arguments<T, C>& g, int64_t row, int64_t column, float first, float second) {
  struct alignas(2 * sizeof(C)) Pair {
    C v[2];
  };
  if (row >= g.m || column >= g.n) return;
  const int64_t at = row * g.n + column;
  float values[2] = {first * g.alpha, second * g.alpha};
  const auto add = [&](const C* from) {
    const Pair pair = *reinterpret_cast<const Pair*>(from);
    values[0] += gpu::to_float(pair.v[0]);
    values[1] += gpu::to_float(pair.v[1]);
  };
  if (g.bias != nullptr) add(g.bias + column);
  if (g.addend != nullptr) add(g.addend + at);
  *reinterpret_cast<Pair*>(g.c + at) = {{gpu::rounded<C>(values[0]), gpu::rounded<C>(values[1])}};
}

// Writes what a warp's tensor-core products leave in each lane: 16 kHalf rows and columns from there on.
template <int kHalf, class T, class C>
PL_DEV void put_tile(const Arguments<T, C>& g, int64_t row, int64_t column,
                     const float (&sums)[kHalf][kHalf * 2][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PL_UNROLL
  for (int i = 0; i < kHalf; ++i) {
    PL_UNROLL
    for (int j = 0; j < kHalf * 2; ++j) {
      PL_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int64_t at = row + i * 16 + lane / 4 + h * 8, from = column + j * 8 + lane % 4 * 2;
        const float first = sums[i][j][h * 2], second = sums[i][j][h * 2 + 1];
        if (g.in_pairs) {
          put_pair(g, at, from, first, second);
          continue;
        }
        put(g, at, from, first);
        put(g, at, from + 1, second);
      }
    }
  }
}

// By tensor cores: four warps of 32 x 32 or 64 x 64, operands brought by asynchronous copies through a ring
// of buffers.
constexpr int kDepth = 32, kStages = 3, kMmaThreads = 128;

// The place of a chunk of 8 values in a tile's row. Chunks are rotated, so that eight rows of a column of
// chunks touch all banks once. Tiles that are stored along the depth have rows of 32 values, the others of 64
// or 128.
template <int kWidth>
PL_DEV int place(int row, int chunk) {
  return row * kWidth + (kWidth == 32 ? (chunk ^ (row / 2)) & 3 : chunk ^ (row & 7)) * 8;
}

template <int kWidth, int kValues, class T>
PL_DEV void fetch_tile(T* tile, const Stored<T>& from, int64_t row0, int64_t column0) {
  constexpr int kChunks = kWidth / 8;
  PL_UNROLL
  for (int i = 0; i < kValues / 8 / kMmaThreads; ++i) {
    const int chunk = i * kMmaThreads + static_cast<int>(threadIdx.x);
    const int r = chunk / kChunks, c = chunk % kChunks;
    const int64_t row = row0 + r, column = column0 + c * 8;
    T* const to = tile + place<kWidth>(r, c);
    if (from.in_packs) {
      const bool live = from.has(row, column);
      gpu::copy_async(to, live ? from.values + row * from.columns + column : from.values, live);
      continue;
    }
    Pack<T> pack{};
    PL_UNROLL
    for (int j = 0; j < 8; ++j)
      if (from.has(row, column + j)) pack.v[j] = from.at(row, column + j);
    gpu::store_pack(to, pack);
  }
}

// An operand's tiles: of kSide rows or columns of C, and kDepth of what is summed over.
template <class T, bool kAlongDepth, int kSide>
struct Tiles {
  static constexpr int kWidth = kAlongDepth ? kDepth : kSide;

  static PL_DEV void fetch(T* tile, const Stored<T>& from, int64_t at, int64_t depth) {
    fetch_tile<kWidth, kSide * kDepth>(tile, from, kAlongDepth ? at : depth, kAlongDepth ? depth : at);
  }
  // 16 rows of the left operand from `row`, 16 of the depth from `depth`.
  static PL_DEV void load_left(uint32_t (&a)[4], const T* tile, int row, int depth) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlongDepth)
      gpu::load_matrix(a, tile + place<kWidth>(row + lane % 16, depth / 8 + lane / 16));
    else
      gpu::load_matrix_transposed(
          a, tile + place<kWidth>(depth + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2));
  }
  // 16 columns of the right operand: two registers for the first eight, two for the others.
  static PL_DEV void load_right(uint32_t (&b)[4], const T* tile, int column, int depth) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlongDepth)
      gpu::load_matrix(b, tile + place<kWidth>(column + lane % 8 + lane / 16 * 8, depth / 8 + lane / 8 % 2));
    else
      gpu::load_matrix_transposed(b, tile + place<kWidth>(depth + lane % 16, column / 8 + lane / 16));
  }
};

template <int kRows, int kColumns, int kValues>
PL_DEV void scale(float (&sums)[kRows][kColumns][kValues], float factor) {
  PL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PL_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      PL_UNROLL
      for (int h = 0; h < kValues; ++h) sums[i][j][h] *= factor;
    }
  }
}

template <class A, class B, int kHalf, class T>
PL_DEV void multiply_tiles(float (&sums)[kHalf][kHalf * 2][4], const T* a_tile, const T* b_tile, int row,
                           int column) {
  PL_UNROLL
  for (int depth = 0; depth < kDepth; depth += 16) {
    uint32_t a[kHalf][4], b[kHalf][4];
    PL_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      A::load_left(a[i], a_tile, row + i * 16, depth);
      B::load_right(b[i], b_tile, column + i * 16, depth);
    }
    PL_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      PL_UNROLL
      for (int j = 0; j < kHalf * 2; ++j) {
        const uint32_t right[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
        gpu::mma<T>(sums[i][j], a[i], right);
      }
    }
  }
}

// Blocks of small tiles that a multiprocessor holds: before Ampere copies go through registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kSmallBlocks = 4;
#else
constexpr int kSmallBlocks = 5;
#endif

template <bool kATransposed, bool kBTransposed, int kSide, bool kRides, class T, class C>
__global__ void __launch_bounds__(kMmaThreads, kSide == kTile ? kSmallBlocks : 2)
    matmul_mma(Arguments<T, C> g) {
  using A = Tiles<T, !kATransposed, kSide>;
  using B = Tiles<T, kBTransposed, kSide>;
  constexpr int kTileValues = kSide * kDepth, kHalf = kSide / 32;
  PL_SHARED(Pack<T>, ring, kStages * 2 * kTileValues / 8);
  T* const tiles = reinterpret_cast<T*>(ring);
  if (!cut_to_live<kATransposed, kSide>(g)) return;
  const int warp = gpu::warp_of_block();
  const int64_t row0 = int64_t{blockIdx.y} * kSide, column0 = int64_t{blockIdx.x} * kSide;
  const int row = warp / 2 * (kSide / 2), column = warp % 2 * (kSide / 2);
  const int64_t riding = kRides ? (g.adapter + kDepth - 1) / kDepth : 0;
  const int64_t steps = riding + (g.k + kDepth - 1) / kDepth;
  const auto a_tile = [&](int64_t step) { return tiles + step % kStages * 2 * kTileValues; };
  const auto b_tile = [&](int64_t step) { return a_tile(step) + kTileValues; };
  const auto fetch = [&](int64_t step) {
    if (kRides && step < riding) {
      A::fetch(a_tile(step), g.adapter_a, row0, step * kDepth);
      B::fetch(b_tile(step), g.adapter_b, column0, step * kDepth);
    } else if (step < steps) {
      A::fetch(a_tile(step), g.a, row0, (step - riding) * kDepth);
      B::fetch(b_tile(step), g.b, column0, (step - riding) * kDepth);
    }
    gpu::commit_copies();  // an empty group keeps the count
  };
  float sums[kHalf][kHalf * 2][4] = {};
  for (int step = 0; step < kStages - 1; ++step) fetch(step);
  for (int64_t step = 0; step < steps; ++step) {
    gpu::wait_copies<kStages - 2>();
    __syncthreads();
    fetch(step + kStages - 1);
    if (kRides && step == riding) scale(sums, g.adapter_scale);
    multiply_tiles<A, B>(sums, a_tile(step), b_tile(step), row, column);
  }
  gpu::wait_copies<0>();
  put_tile<kHalf>(g, row0 + row, column0 + column, sums);
}

// Without tensor cores: 256 threads of 4 x 4.
constexpr int kPlainDepth = 16, kPlainThreads = 256;
constexpr int kPlainRow = kTile + 4;  // spreads the columns of a transposed store over the banks

// Brings a tile as [depth][64]; each thread takes four neighbours of a stored row.
template <bool kAlongDepth>
PL_DEV void fetch_plain(float* tile, const Stored<float>& from, int64_t at, int64_t depth) {
  constexpr int kGroups = (kAlongDepth ? kPlainDepth : kTile) / 4;  // of a stored row
  const int r = static_cast<int>(threadIdx.x) / kGroups, c = static_cast<int>(threadIdx.x) % kGroups * 4;
  const int64_t row = (kAlongDepth ? at : depth) + r, column = (kAlongDepth ? depth : at) + c;
  PL_UNROLL
  for (int j = 0; j < 4; ++j) {
    const int place = kAlongDepth ? (c + j) * kPlainRow + r : r * kPlainRow + c + j;
    tile[place] = from.has(row, column + j) ? from.at(row, column + j) : 0.0F;
  }
}

template <bool kATransposed, bool kBTransposed, bool kRides>
__global__ void __launch_bounds__(kPlainThreads) matmul_plain(Arguments<float, float> g) {
  PL_SHARED(Pack<float>, packs, 2 * kPlainDepth * kPlainRow / 4);
  float* const a_tile = reinterpret_cast<float*>(packs);
  float* const b_tile = a_tile + kPlainDepth * kPlainRow;
  if (!cut_to_live<kATransposed>(g)) return;
  const int64_t row0 = int64_t{blockIdx.y} * kTile, column0 = int64_t{blockIdx.x} * kTile;
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
  float sums[1][4][4] = {};
  const auto add = [&](const Stored<float>& left, const Stored<float>& right, int64_t depth) {
    fetch_plain<!kATransposed>(a_tile, left, row0, depth);
    fetch_plain<kBTransposed>(b_tile, right, column0, depth);
    __syncthreads();
    PL_UNROLL
    for (int k = 0; k < kPlainDepth; ++k) {
      const Pack<float> a = gpu::load_pack(a_tile + k * kPlainRow + row);
      const Pack<float> b = gpu::load_pack(b_tile + k * kPlainRow + column);
      PL_UNROLL
      for (int i = 0; i < 4; ++i) {
        PL_UNROLL
        for (int j = 0; j < 4; ++j) sums[0][i][j] = gpu::fma(a.v[i], b.v[j], sums[0][i][j]);
      }
    }
    __syncthreads();
  };
  if (kRides) {
    for (int64_t depth = 0; depth < g.adapter; depth += kPlainDepth) add(g.adapter_a, g.adapter_b, depth);
    scale(sums, g.adapter_scale);
  }
  for (int64_t depth = 0; depth < g.k; depth += kPlainDepth) add(g.a, g.b, depth);
  PL_UNROLL
  for (int i = 0; i < 4; ++i) {
    PL_UNROLL
    for (int j = 0; j < 4; ++j) put(g, row0 + row + i, column0 + column + j, sums[0][i][j]);
  }
}

// TF32 by tensor cores: four warps of 32 x 32. Tiles lie as [depth][row]; the odd eight spread a fragment's
// lanes, four of the depth by eight rows, over all banks.
constexpr int kTf32Depth = 16, kTf32Row = kTile + 8;

template <bool kAlongDepth>
PL_DEV void fetch_tf32(uint32_t* tile, const Stored<float>& from, int64_t at, int64_t depth) {
  constexpr int kWidth = kAlongDepth ? kTf32Depth : kTile;  // of a stored row of the tile
  PL_UNROLL
  for (int i = 0; i < kTile * kTf32Depth / kMmaThreads; ++i) {
    const int value = i * kMmaThreads + static_cast<int>(threadIdx.x);
    const int r = value / kWidth, c = value % kWidth;
    const int64_t row = (kAlongDepth ? at : depth) + r, column = (kAlongDepth ? depth : at) + c;
    const int place = kAlongDepth ? c * kTf32Row + r : r * kTf32Row + c;
    tile[place] = gpu::to_tf32(from.has(row, column) ? from.at(row, column) : 0.0F);
  }
}

PL_DEV void multiply_tf32(float (&sums)[2][4][4], const uint32_t* a_tile, const uint32_t* b_tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32, of_depth = lane % 4, of_tile = lane / 4;
  PL_UNROLL
  for (int depth = 0; depth < kTf32Depth; depth += 8) {
    const uint32_t* const a = a_tile + (depth + of_depth) * kTf32Row + of_tile;
    const uint32_t* const b = b_tile + (depth + of_depth) * kTf32Row + of_tile;
    PL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t left[4] = {a[i * 16], a[i * 16 + 8], a[i * 16 + 4 * kTf32Row],
                                a[i * 16 + 8 + 4 * kTf32Row]};
      PL_UNROLL
      for (int j = 0; j < 4; ++j) {
        const uint32_t right[2] = {b[j * 8], b[j * 8 + 4 * kTf32Row]};
        gpu::mma_tf32(sums[i][j], left, right);
      }
    }
  }
}

template <bool kATransposed, bool kBTransposed, bool kRides>
__global__ void __launch_bounds__(kMmaThreads) matmul_tf32(Arguments<float, float> g) {
  PL_SHARED(uint32_t, tiles, 2 * kTf32Depth * kTf32Row);
  uint32_t* const a_tile = tiles;
  uint32_t* const b_tile = a_tile + kTf32Depth * kTf32Row;
  if (!cut_to_live<kATransposed>(g)) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row0 = int64_t{blockIdx.y} * kTile, column0 = int64_t{blockIdx.x} * kTile;
  const int row = warp / 2 * 32, column = warp % 2 * 32;
  float sums[2][4][4] = {};
  const auto add = [&](const Stored<float>& left, const Stored<float>& right, int64_t depth) {
    fetch_tf32<!kATransposed>(a_tile, left, row0, depth);
    fetch_tf32<kBTransposed>(b_tile, right, column0, depth);
    __syncthreads();
    multiply_tf32(sums, a_tile + row, b_tile + column);
    __syncthreads();
  };
  if (kRides) {
    for (int64_t depth = 0; depth < g.adapter; depth += kTf32Depth) add(g.adapter_a, g.adapter_b, depth);
    scale(sums, g.adapter_scale);
  }
  for (int64_t depth = 0; depth < g.k; depth += kTf32Depth) add(g.a, g.b, depth);
  put_tile<2>(g, row0 + row, column0 + column, sums);
}

template <class T>
Stored<T> stored(const void* values, int64_t rows, int64_t columns, bool transposed) {
  if (transposed) std::swap(rows, columns);
  const bool in_packs =
      columns % Pack<T>::kCount == 0 && reinterpret_cast<uintptr_t>(values) % sizeof(Pack<T>) == 0;
  return {static_cast<const T*>(values), rows, columns, in_packs};
}

template <class C>
bool in_pairs(const GpuMatmul& g) {
  const auto begins_even = [](const void* values) {
    return reinterpret_cast<uintptr_t>(values) % (2 * sizeof(C)) == 0;
  };
  return g.shape.n % 2 == 0 && begins_even(g.c) && begins_even(g.addend) && begins_even(g.bias);
}

template <class T, class C>
Arguments<T, C> arguments(const GpuMatmul& g) {
  const MatmulShape& s = g.shape;
  return {.a = stored<T>(g.a, s.m, s.k, s.a_transposed),
          .b = stored<T>(g.b, s.k, s.n, s.b_transposed),
          .c = static_cast<C*>(g.c),
          .addend = static_cast<const C*>(g.addend),
          .bias = static_cast<const C*>(g.bias),
          .m = s.m,
          .n = s.n,
          .k = s.k,
          .in_pairs = in_pairs<C>(g),
          .alpha = g.alpha,
          .live = g.live,
          .accumulation = g.accumulation,
          .adapter_a = stored<T>(g.adapter_a, s.m, s.adapter, false),
          .adapter_b = stored<T>(g.adapter_b, s.adapter, s.n, s.b_transposed),
          .adapter = s.adapter,
          .adapter_scale = g.adapter_alpha / g.alpha};
}

// Wide tiles read operands half as often; they pay where they keep a card busy, and where more is multiplied
// than written.
bool takes_wide_tiles(const GpuMatmul& g) {
  constexpr int64_t kBlocks = 200, kLeastDepth = 128;
  if (g.tile != 0) return g.tile == kWideTile;
  return g.shape.k >= kLeastDepth &&
         int64_t{gpu::blocks_of(g.shape.n, kWideTile)} * gpu::blocks_of(g.shape.m, kWideTile) >= kBlocks;
}

template <bool kATransposed, bool kBTransposed, bool kRides, class T, class C>
void launch_mma(gpu::Stream& stream, const GpuMatmul& g) {
  const bool wide = takes_wide_tiles(g);
  const auto kernel = wide ? matmul_mma<kATransposed, kBTransposed, kWideTile, kRides, T, C>
                           : matmul_mma<kATransposed, kBTransposed, kTile, kRides, T, C>;
  const int side = wide ? kWideTile : kTile;
  gpu::launch(stream, {gpu::blocks_of(g.shape.n, side), gpu::blocks_of(g.shape.m, side)}, {kMmaThreads},
              kernel, arguments<T, C>(g));
}

template <bool kATransposed, bool kBTransposed, bool kRides, class T>
void launch_16_bits(gpu::Stream& stream, const GpuMatmul& g) {
  if constexpr (!kRides)
    if (g.shape.c == DType::f32) return launch_mma<kATransposed, kBTransposed, kRides, T, float>(stream, g);
  launch_mma<kATransposed, kBTransposed, kRides, T, T>(stream, g);
}

template <bool kATransposed, bool kBTransposed, bool kRides>
void launch_form(gpu::Stream& stream, const GpuMatmul& g) {
  const gpu::Dim3 grid{gpu::blocks_of(g.shape.n, kTile), gpu::blocks_of(g.shape.m, kTile)};
  if (g.shape.a == DType::f32 && g.tf32)
    gpu::launch(stream, grid, {kMmaThreads}, matmul_tf32<kATransposed, kBTransposed, kRides>,
                arguments<float, float>(g));
  else if (g.shape.a == DType::f32)
    gpu::launch(stream, grid, {kPlainThreads}, matmul_plain<kATransposed, kBTransposed, kRides>,
                arguments<float, float>(g));
  else if (g.shape.a == DType::f16)
    launch_16_bits<kATransposed, kBTransposed, kRides, gpu::f16>(stream, g);
  else
    launch_16_bits<kATransposed, kBTransposed, kRides, gpu::bf16>(stream, g);
}

}  // namespace

void require_matmul(const GpuBinding& b, const MatmulShape& s) {
  const bool plain = s.a == DType::f32 && s.c == DType::f32;
  const bool by_tensor_cores = size_of(s.a) == 2 && (s.c == DType::f32 || s.c == s.a);
  const bool rides = s.adapter == 0 || (!s.a_transposed && s.c == s.a);
  if (s.a != s.b || (!plain && !by_tensor_cores) || (s.a_transposed && s.b_transposed) || !rides)
    refuse_on_gpu(b, "a product of " + std::string(to_string(s.a)) + " and " + std::string(to_string(s.b)) +
                         " to " + std::string(to_string(s.c)));
  require_tensor_cores(b, s.a);
  constexpr int kFirstWithTf32 = 80;
  if (by_tf32(b) && b.card().compute_capability < kFirstWithTf32)
    refuse_on_gpu(b, "products of TF32 on a card of compute capability 7.5");
}

bool by_tf32(const GpuBinding& b) { return b.op().attrs.contains("tf32"); }

void launch_own_matmul(gpu::Stream& stream, const GpuMatmul& g) {
  const bool rides = g.shape.adapter > 0;
  if (g.shape.a_transposed) return launch_form<true, false, false>(stream, g);
  if (g.shape.b_transposed)
    return rides ? launch_form<false, true, true>(stream, g) : launch_form<false, true, false>(stream, g);
  rides ? launch_form<false, false, true>(stream, g) : launch_form<false, false, false>(stream, g);
}

}  // namespace PLIMSOLL_GPU
}  // namespace plimsoll
